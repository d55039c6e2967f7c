-- How many links a Site has, by state and by when they were invited, so that no total is ever counted out.
--
-- Each change of a link's state is rows of link_changes, written in its transaction by a trigger: nobody can go past it, an older
-- binary included, and since rows are only added, writers never wait for each other. Folding moves changes into
-- link_counts. At every moment, for each Site, state and range of time: links = counts + changes.
SET LOCAL statement_timeout = 0;

CREATE TABLE link_changes (
    site_id    uuid       NOT NULL,
    invited_at bigint     NOT NULL,
    state      link_state NOT NULL,
    change     smallint   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX link_changes_site ON link_changes (site_id);

-- A tree over time. A node of level n counts the links invited in 128^n ms, from bucket << 7n on; a root, of level 6, those of 139
-- years. A node that has become crowded is divided: from then on it has nodes of the level below, for those of its 128 parts that
-- have links. So a range of time is a few rows of each level and, at both ends, less than one leaf.
CREATE TABLE link_counts (
    site_id uuid     NOT NULL REFERENCES sites,
    level   smallint NOT NULL CHECK (level BETWEEN 0 AND 6),
    bucket  bigint   NOT NULL,
    divided boolean  NOT NULL DEFAULT false,
    invited bigint   NOT NULL,
    linked  bigint   NOT NULL,
    expired bigint   NOT NULL,
    revoked bigint   NOT NULL,
    PRIMARY KEY (site_id, level, bucket)
) WITH (fillfactor = 80);

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

-- Invitations past expiry that no sweep has written down yet: few, and what totals by state are corrected by.
CREATE INDEX customer_links_overdue ON customer_links (site_id, expires_at, invited_at, id) WHERE state = 'invited';

-- The links that are there already. A change by nothing makes the first fold look at each root and divide the crowded ones.
INSERT INTO link_counts (site_id, level, bucket, invited, linked, expired, revoked)
SELECT site_id, 6, invited_at >> 42, count(*) FILTER (WHERE state = 'invited'), count(*) FILTER (WHERE state = 'linked'),
       count(*) FILTER (WHERE state = 'expired'), count(*) FILTER (WHERE state = 'revoked')
FROM customer_links GROUP BY site_id, invited_at >> 42;
INSERT INTO link_changes SELECT site_id, bucket << 42, 'invited', 0 FROM link_counts;
