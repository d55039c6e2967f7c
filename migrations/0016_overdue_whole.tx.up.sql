-- Of overdue invitations that are on a page the index has all that the page shows. It is made here and the one that it replaces goes in the
-- next migration: a transaction that holds one table, or a lesser lock, while it wants customer_links to itself deadlocks with lists.
SET LOCAL statement_timeout = 0;
CREATE INDEX customer_links_overdue_whole ON customer_links (site_id, expires_at, invited_at, id) INCLUDE (customer_reference)
    WHERE state = 'invited';
