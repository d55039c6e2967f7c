DROP INDEX customer_links_overdue;
