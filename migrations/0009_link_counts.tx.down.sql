DROP TRIGGER customer_links_come_and_go ON customer_links;
DROP TRIGGER customer_links_change ON customer_links;
DROP FUNCTION note_link_change;
DROP INDEX customer_links_overdue;
DROP TABLE link_counts;
DROP TABLE link_changes;
