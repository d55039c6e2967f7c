SET LOCAL statement_timeout = 0;
SELECT pg_advisory_xact_lock(x'5376634c696e6b'::bigint);
DROP VIEW link_counts;
DROP TABLE link_totals;
DROP FUNCTION add_links;
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
-- All links as roots, and changes by nothing that have the first fold divide the crowded ones: as when links were first counted.
WITH folded AS (DELETE FROM link_changes)
INSERT INTO link_counts (site_id, level, bucket, invited, linked, expired, revoked)
SELECT site_id, 6, invited_at >> 42, count(*) FILTER (WHERE state = 'invited'), count(*) FILTER (WHERE state = 'linked'),
       count(*) FILTER (WHERE state = 'expired'), count(*) FILTER (WHERE state = 'revoked')
FROM customer_links GROUP BY site_id, invited_at >> 42;
INSERT INTO link_changes SELECT site_id, bucket << 42, 'invited', 0 FROM link_counts;
