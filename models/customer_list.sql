-- One page of a Site's customer links in one effective state, whether links lie behind it, and the
-- number of all links that match. An empty page has one row, without a link.
--
--   :site                    the Site
--   :from, :to               the range of invited_at, inclusive, in milliseconds of service time
--   :ahead_at, :ahead_key    the position beyond which the page lies: invited_at and id
--   :behind_at, :behind_key  the position behind which links are looked for
--   :limit                   the largest number of links
--   :overdue                 how overdue invitations count: 0 by their stored state, -1 not at all,
--                            1 in addition to the links with the stored state
--   STORED                   a condition on the stored state
--   MATCHING                 the same, without overdue invitations if :overdue is -1
--
-- newListStatement in page.go replaces the variables in upper case.
--
-- All parts come from one snapshot and one reading of the clock. Subselects read the clock, so that
-- the index scan of the page ends at the limit.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT svc_now() AS now
), overdue AS MATERIALIZED (
    -- Invitations past their expiry that no sweep has expired yet. They are few and are selected by
    -- expiry first, since no other condition is selective.
    SELECT invited_at, id, customer_reference, expires_at FROM customer_links
    WHERE site_id = :site AND state = 'invited' AND expires_at <= (SELECT now FROM clock)
), tree AS (
    -- The total is the number of links invited before the end of the range, less those invited
    -- before its beginning. For each bound (at), the recursion descends from the root (level 6)
    -- through the nodes that cover it. before is the number of links in a node's parts before the
    -- part that contains the bound. The migration 0002_customers explains the nodes.
    SELECT at, sign, 7 AS level, 0::bigint AS before, true AS found
    FROM (VALUES (:from::bigint, -1), (:to::bigint + 1, 1)) AS b (at, sign) WHERE at > 0
    UNION ALL
    SELECT t.at, t.sign, t.level - 1, n.before, n.found
    FROM tree t CROSS JOIN LATERAL (
        SELECT coalesce(sum(totals[link_part(t.level - 1, t.at) - 1]), 0)::bigint AS before,
               count(*) > 0 AS found
        FROM link_totals
        WHERE site_id = :site AND level = t.level - 1 AND bucket = link_bucket(t.level - 1, t.at) AND :STORED
    ) AS n WHERE t.found
), leaf AS MATERIALIZED (
    -- Where each descent ends. start is the beginning of the part that contains the bound.
    SELECT at, sign, link_start(level, link_bucket(level, at)) AS start FROM tree WHERE NOT found
), total AS (
    SELECT coalesce(sum(n), 0) AS n FROM (
        SELECT sign * before AS n FROM tree
        UNION ALL
        -- Changes before start that are not folded into the nodes.
        SELECT sign * change FROM leaf CROSS JOIN LATERAL (
            SELECT sum(change) AS change FROM link_changes WHERE site_id = :site AND invited_at < start AND :STORED
        ) AS c
        UNION ALL
        -- Links from start to the bound, counted one by one.
        SELECT sign * links FROM leaf CROSS JOIN LATERAL (
            SELECT count(*) AS links FROM customer_links
            WHERE site_id = :site AND invited_at >= start AND invited_at < at AND start < at AND :STORED
        ) AS l
        UNION ALL
        SELECT :overdue::int * count(*) FROM overdue WHERE :overdue::int <> 0 AND invited_at BETWEEN :from AND :to
    ) AS parts
), page AS (
    SELECT * FROM (
        (SELECT * FROM (
            SELECT id, customer_reference, state, invited_at, expires_at, linked_at FROM customer_links
            WHERE site_id = :site AND (invited_at, id) :AHEAD (:ahead_at, :ahead_key) AND invited_at :UNTIL
              AND :MATCHING
            ORDER BY invited_at :ORDER, id :ORDER LIMIT :MOST
        ) AS l LIMIT :limit)
        UNION ALL
        SELECT id, customer_reference, 'invited', invited_at, expires_at, NULL FROM overdue
        WHERE :overdue::int = 1 AND (invited_at, id) :AHEAD (:ahead_at, :ahead_key) AND invited_at :UNTIL
    ) AS p ORDER BY invited_at :ORDER, id :ORDER LIMIT :limit
)
SELECT clock.now, (SELECT n FROM total)::bigint AS total,
       -- With ORDER BY, one index entry answers. EXISTS would drop the order.
       (SELECT true FROM customer_links
        WHERE site_id = :site AND (invited_at, id) :BEHIND (:behind_at, :behind_key) AND invited_at :SINCE
          AND :behind_at :SINCE AND :MATCHING
        ORDER BY invited_at :BACK, id :BACK LIMIT 1) IS NOT NULL
       OR EXISTS (
           SELECT FROM overdue
           WHERE :overdue::int = 1 AND (invited_at, id) :BEHIND (:behind_at, :behind_key) AND invited_at :SINCE
       ) AS behind,
       :site::uuid AS site_id, page.*
FROM clock LEFT JOIN page ON true
ORDER BY page.invited_at DESC, page.id DESC
