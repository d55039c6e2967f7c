DROP TABLE customer_links;
DROP TYPE link_state;
