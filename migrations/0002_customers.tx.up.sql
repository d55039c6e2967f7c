-- Customer links, and the totals of their lists.

CREATE TYPE link_state AS ENUM ('invited', 'linked', 'expired', 'revoked');

-- One row per customer link. The service derives the token of the invitation from the link's id,
-- with the key key_id of service_keys. The token is never stored.
CREATE TABLE customer_links (
    site_id            uuid       NOT NULL REFERENCES sites,
    id                 uuid       NOT NULL,
    customer_reference text       NOT NULL COLLATE "C",
    state              link_state NOT NULL DEFAULT 'invited',
    invited_at         bigint     NOT NULL,
    expires_at         bigint     NOT NULL, -- of the invitation
    linked_at          bigint,
    revoked_at         bigint,
    party              bytea,               -- customer and agreement, sealed under a master key; NULL: none, or erased
    key_id             uuid       NOT NULL,
    trace_id           text       NOT NULL DEFAULT '',
    CHECK ((state = 'linked') <= (linked_at IS NOT NULL AND party IS NOT NULL))  -- <=: implies
);
CREATE UNIQUE INDEX customer_links_id ON customer_links (id);
CREATE INDEX customer_links_newest ON customer_links (site_id, customer_reference, invited_at DESC, id DESC);
CREATE INDEX customer_links_list ON customer_links (site_id, invited_at DESC, id DESC);
CREATE INDEX customer_links_list_by_state ON customer_links (site_id, state, invited_at DESC, id DESC);
CREATE INDEX customer_links_due_expiry ON customer_links (expires_at) WHERE state = 'invited';
-- Finds overdue invitations: past their expiry, and not yet marked as expired by a sweep. There are
-- few of them, and lists correct their totals by their number. The index covers every column that a
-- list shows of such an invitation.
CREATE INDEX customer_links_overdue_whole ON customer_links (site_id, expires_at, invited_at, id)
    INCLUDE (customer_reference) WHERE state = 'invited';
-- Finds revoked links that still name their customer, for retention.
CREATE INDEX customer_links_forgettable ON customer_links (revoked_at)
    WHERE state = 'revoked' AND party IS NOT NULL;
CREATE UNIQUE INDEX customer_links_active ON customer_links (site_id, customer_reference)
    WHERE state IN ('invited', 'linked');
ALTER TABLE customer_links ADD PRIMARY KEY (site_id, id);
CREATE TRIGGER customer_links_transitions AFTER UPDATE OF state ON customer_links
    FOR EACH ROW WHEN (OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (
        ('invited', 'linked'), ('invited', 'expired'), ('invited', 'revoked'), ('linked', 'revoked')))
    EXECUTE FUNCTION refuse_transition('state');

-- Lists read stored totals instead of counting links. A trigger writes each change of the number of
-- links in a state to link_changes, in the transaction of the change. Writers only insert rows, so
-- they never wait for each other. A sweep folds the changes: it moves them into link_totals. At any
-- time, and for each Site, state and time range: links = totals + changes.
CREATE TABLE link_changes (
    site_id    uuid       NOT NULL,
    invited_at bigint     NOT NULL,
    state      link_state NOT NULL,
    change     smallint   NOT NULL  -- 1 or -1 links
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX link_changes_site ON link_changes (site_id);

-- The number of links by time of invitation: one tree of nodes for each Site. A node of level n
-- covers 128^n ms of Unix time, from bucket * 128^n on, in 128 equal parts. The node has one row
-- for each state that has had links in it. In that row, totals[p] is the number of the state's
-- links in parts 1 to p. A part with many links also has a node of its own, one level down. The
-- root, at level 6, covers the time until 2109.
CREATE TABLE link_totals (
    site_id uuid       NOT NULL REFERENCES sites,
    level   smallint   NOT NULL CHECK (level BETWEEN 1 AND 6),
    bucket  bigint     NOT NULL,
    state   link_state NOT NULL,
    totals  int[]      NOT NULL CHECK (cardinality(totals) = 128),
    PRIMARY KEY (site_id, level, bucket, state)
) WITH (fillfactor = 50); -- leaves space for HOT updates

-- The planner inlines the following functions, so that they cost no call.

-- link_bucket returns the bucket of the node that covers a time on a level.
CREATE FUNCTION link_bucket(level int, at bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN at >> 7 * level;

-- link_start returns the time at which a node begins.
CREATE FUNCTION link_start(level int, bucket bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN bucket << 7 * level;

-- link_part returns the part, 1 to 128, of the node that covers a time on a level.
CREATE FUNCTION link_part(level int, at bigint) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN (at >> 7 * (level - 1) & 127)::int + 1;

-- record_link_change writes the changes of totals that a change of one link makes to link_changes.
CREATE FUNCTION record_link_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO link_changes VALUES (OLD.site_id, OLD.invited_at, OLD.state, -1);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO link_changes VALUES (NEW.site_id, NEW.invited_at, NEW.state, 1);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER customer_links_count AFTER INSERT OR DELETE ON customer_links
    FOR EACH ROW EXECUTE FUNCTION record_link_change();
CREATE TRIGGER customer_links_change AFTER UPDATE ON customer_links
    FOR EACH ROW
    WHEN ((OLD.site_id, OLD.invited_at, OLD.state) IS DISTINCT FROM (NEW.site_id, NEW.invited_at, NEW.state))
    EXECUTE FUNCTION record_link_change();

-- add_links returns the totals of a node after the addition of changes[i] links to part parts[i],
-- for every i. Parts count from 1 to 128. NULL totals mean a node without links.
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
