-- This query replaces the variable FOLDED in customer_make_nodes.sql and in an audit check. It
-- returns the number of links (change) that each part of the nodes in CTE "nodes" must show, by
-- state: all links less the changes that are not folded yet.
SELECT n.site_id, n.level, n.bucket, p.part, p.state, p.change FROM nodes AS n CROSS JOIN LATERAL (
        -- Index-only scans suffice, since the links are read state by state.
        SELECT link_part(n.level, invited_at) AS part, state, sum(change)::int AS change FROM (
            SELECT invited_at, s.state, 1 AS change FROM unnest(enum_range(NULL::link_state)) AS s(state)
            CROSS JOIN LATERAL (
                SELECT invited_at FROM customer_links WHERE site_id = n.site_id AND state = s.state
                    AND invited_at >= link_start(n.level, n.bucket) AND invited_at < link_start(n.level, n.bucket + 1)
            ) AS l
            UNION ALL
            SELECT invited_at, state, -change FROM link_changes WHERE site_id = n.site_id
                AND invited_at >= link_start(n.level, n.bucket) AND invited_at < link_start(n.level, n.bucket + 1)
        ) AS l GROUP BY 1, 2
    ) AS p
