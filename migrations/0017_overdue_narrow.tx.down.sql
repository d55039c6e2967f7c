SET LOCAL statement_timeout = 0;
CREATE INDEX customer_links_overdue ON customer_links (site_id, expires_at, invited_at, id) WHERE state = 'invited';
