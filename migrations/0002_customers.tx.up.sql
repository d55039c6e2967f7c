-- Customer links, and how many of them there are.

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
    CHECK ((state = 'linked') <= (linked_at IS NOT NULL AND customer_id IS NOT NULL AND agreement_id IS NOT NULL))
);
CREATE UNIQUE INDEX customer_links_id ON customer_links (id);
CREATE INDEX customer_links_newest ON customer_links (site_id, customer_reference, invited_at DESC, id DESC);
CREATE INDEX customer_links_list ON customer_links (site_id, invited_at DESC, id DESC);
CREATE INDEX customer_links_list_by_state ON customer_links (site_id, state, invited_at DESC, id DESC);
CREATE INDEX customer_links_due_expiry ON customer_links (expires_at) WHERE state = 'invited';
-- Invitations past expiry that no sweep has written down yet: few, and what totals by state are corrected by. The index
-- holds all that a page of a list shows of them.
CREATE INDEX customer_links_overdue_whole ON customer_links (site_id, expires_at, invited_at, id) INCLUDE (customer_reference)
    WHERE state = 'invited';
CREATE UNIQUE INDEX customer_links_active ON customer_links (site_id, customer_reference)
    WHERE state IN ('invited', 'linked');
ALTER TABLE customer_links ADD PRIMARY KEY (site_id, id);

-- Totals of a list are kept, not counted. A trigger writes each change of a link's state to link_changes, in the
-- transaction of the change. Rows are only added, so that writers never wait for each other. Folding moves changes into
-- link_totals. At every moment, for each Site, state and range of time: links = totals + changes.
CREATE TABLE link_changes (
    site_id    uuid       NOT NULL,
    invited_at bigint     NOT NULL,
    state      link_state NOT NULL,
    change     smallint   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX link_changes_site ON link_changes (site_id);

-- A tree over time for each state. A node of level n has the links invited in 128^n ms, from bucket << 7n on, in 128
-- parts: totals[p] counts those of its first p parts. The root, of level 6, reaches until 2109. A crowded part is a node
-- of its own as well. A node has a row for each state that has had links in it.
CREATE TABLE link_totals (
    site_id uuid       NOT NULL REFERENCES sites,
    level   smallint   NOT NULL CHECK (level BETWEEN 1 AND 6),
    bucket  bigint     NOT NULL,
    state   link_state NOT NULL,
    totals  int[]      NOT NULL CHECK (cardinality(totals) = 128),
    PRIMARY KEY (site_id, level, bucket, state)
) WITH (fillfactor = 50); -- room for the next versions of a page's rows

CREATE FUNCTION note_link_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO link_changes VALUES (OLD.site_id, OLD.invited_at, OLD.state, -1);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO link_changes VALUES (NEW.site_id, NEW.invited_at, NEW.state, 1);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER customer_links_come_and_go AFTER INSERT OR DELETE ON customer_links
    FOR EACH ROW EXECUTE FUNCTION note_link_change();
CREATE TRIGGER customer_links_change AFTER UPDATE ON customer_links
    FOR EACH ROW WHEN ((OLD.site_id, OLD.invited_at, OLD.state) IS DISTINCT FROM (NEW.site_id, NEW.invited_at, NEW.state))
    EXECUTE FUNCTION note_link_change();

-- add_links adds changes in some parts, from 1 on, to the totals of a node. NULL stands for a node without links.
CREATE FUNCTION add_links(totals int[], parts int[], changes int[]) RETURNS int[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    none int[] := array_fill(0, ARRAY[128]);
    changed int[] := none;
    before int := 0;
BEGIN
    totals := coalesce(totals, none);
    FOR i IN 1 .. cardinality(parts) LOOP
        changed[parts[i]] := changed[parts[i]] + changes[i];
    END LOOP;
    FOR part IN (SELECT min(p) FROM unnest(parts) AS p) .. 128 LOOP
        before := before + changed[part];
        totals[part] := totals[part] + before;
    END LOOP;
    RETURN totals;
END $$;
