-- The counts behind totals in few wide rows in place of many narrow ones: so a range of time is as few rows of a large Site as of a small
-- one. link_changes and the triggers that write it stay as they are.
SET LOCAL statement_timeout = 0;
SELECT pg_advisory_xact_lock(x'5376634c696e6b'::bigint); -- as who folds: nobody does until this is over

-- A tree over time for each state. A node of level n has the links invited in 128^n ms, from bucket << 7n on, in 128 parts: totals[p]
-- are those of its first p parts, so that what was invited before any part is one element. The root, of level 6, goes on until 2109. A
-- part that has become crowded is a node of its own as well. A node has a row for each state that has had links in it.
CREATE TABLE link_totals (
    site_id uuid       NOT NULL REFERENCES sites,
    level   smallint   NOT NULL CHECK (level BETWEEN 1 AND 6),
    bucket  bigint     NOT NULL,
    state   link_state NOT NULL,
    totals  int[]      NOT NULL CHECK (cardinality(totals) = 128),
    PRIMARY KEY (site_id, level, bucket, state)
) WITH (fillfactor = 50); -- which leaves room for the next versions of a page's rows

-- add_links adds changes in some parts, from 1 on, to the totals of a node, NULL being those of one without links.
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

-- The links that are there already, less what is not folded yet, in roots. A change by nothing for each of their parts has the first
-- fold make the nodes below.
INSERT INTO link_totals
SELECT site_id, 6, 0, state, add_links(NULL, array_agg(part), array_agg(change)) FROM (
    SELECT site_id, state, (invited_at >> 35)::int + 1 AS part, sum(change)::int AS change FROM (
        SELECT site_id, invited_at, state, 1 AS change FROM customer_links
        UNION ALL
        SELECT site_id, invited_at, state, -change FROM link_changes) AS folded
    GROUP BY 1, 2, 3) AS parts
GROUP BY 1, 4;
INSERT INTO link_changes
SELECT site_id, part::bigint << 35, state, 0 FROM link_totals CROSS JOIN generate_series(0, 127) AS part
WHERE totals[part + 1] <> coalesce(totals[part], 0);

-- What the release before reads. It cannot fold while it still runs: what is not folded is in totals all the same.
DROP TABLE link_counts;
CREATE VIEW link_counts AS
WITH nodes AS (
    SELECT site_id, level, bucket, state, totals[128] AS links FROM link_totals WHERE level = 6
    UNION ALL
    SELECT site_id, level - 1, bucket << 7 | part, state, totals[part + 1] - coalesce(totals[part], 0)
    FROM link_totals CROSS JOIN generate_series(0, 127) AS part
)
SELECT site_id, level, bucket,
    EXISTS (SELECT FROM link_totals t WHERE t.site_id = n.site_id AND t.level = n.level AND t.bucket = n.bucket) AS divided,
    coalesce(sum(links) FILTER (WHERE state = 'invited'), 0) AS invited,
    coalesce(sum(links) FILTER (WHERE state = 'linked'), 0) AS linked,
    coalesce(sum(links) FILTER (WHERE state = 'expired'), 0) AS expired,
    coalesce(sum(links) FILTER (WHERE state = 'revoked'), 0) AS revoked
FROM nodes n GROUP BY site_id, level, bucket;
