CREATE TYPE link_state AS ENUM ('invited', 'linked', 'expired', 'revoked');

-- One row a customer link. The invitation's token is computed from the id under the key that key_id names, and is not
-- in the database.
CREATE TABLE customer_links (
    site_id            uuid       NOT NULL REFERENCES sites,
    id                 uuid       NOT NULL,
    customer_reference text       NOT NULL COLLATE "C",
    state              link_state NOT NULL DEFAULT 'invited',
    invited_at         bigint     NOT NULL,
    expires_at         bigint     NOT NULL,
    linked_at          bigint,
    revoked_at         bigint,
    customer_id        text,                -- the customer app's names, never shown to a partner
    agreement_id       text,
    key_id             uuid       NOT NULL,
    trace_id           text       NOT NULL DEFAULT '',
    PRIMARY KEY (site_id, id),
    CHECK ((state = 'linked') <= (linked_at IS NOT NULL AND customer_id IS NOT NULL AND agreement_id IS NOT NULL))
);
CREATE UNIQUE INDEX customer_links_active ON customer_links (site_id, customer_reference)
    WHERE state IN ('invited', 'linked');
CREATE UNIQUE INDEX customer_links_id ON customer_links (id);
CREATE INDEX customer_links_newest ON customer_links (site_id, customer_reference, invited_at DESC, id DESC);
CREATE INDEX customer_links_list ON customer_links (site_id, invited_at DESC, id DESC);
CREATE INDEX customer_links_list_by_state ON customer_links (site_id, state, invited_at DESC, id DESC);
CREATE INDEX customer_links_due_expiry ON customer_links (expires_at) WHERE state = 'invited';
