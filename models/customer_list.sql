-- Store.ListLinks reads one page of a Site's customer links in one effective state. An overdue
-- invitation is past its expiry, but still stored as invited; its effective state is expired.
--
-- Each row is one link of the page, newest first. It repeats what concerns the list: the service
-- time (now), the number of all links that match (total), and whether links lie on the other side
-- of the page's start (behind). An empty page has one row, without a link.
--
--   :site                    the id of the Site
--   :from, :to               the range of invited_at, inclusive, in milliseconds of service time
--   :ahead_at, :ahead_key    where the page starts, exclusive: an invited_at and a link id
--   :behind_at, :behind_key  where the search for links behind the page starts
--   :limit                   the maximum number of links
--   :overdue                 how overdue invitations count: 0 by their stored state, -1 not at all,
--                            1 in addition to the links with the stored state
--   STORED                   a condition on the stored state
--   MATCHING                 the same condition, without overdue invitations if :overdue is -1
--
-- newListStatement in page.go replaces the variables in upper case, and explains the others.
--
-- All parts come from one snapshot and one reading of the clock. Subselects read the clock, so that
-- the index scan of the page ends at the limit.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT svc_now() AS now
), overdue AS MATERIALIZED (
    -- The overdue invitations, which no sweep has expired yet. They are few, and no other condition
    -- selects few links.
    SELECT invited_at, id, customer_reference, expires_at FROM customer_links
    WHERE site_id = :site AND state = 'invited' AND expires_at <= (SELECT now FROM clock)
), tree AS (
    -- The total is the number of links invited before the end of the range, less the number invited
    -- before its beginning. For each of these two bounds (at), the recursion descends from the root
    -- node (level 6) through the nodes that cover the bound. In each node, before is the number of
    -- links in the parts before the one that contains the bound. The migration 0002_customers
    -- explains the nodes.
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
    -- The end of each descent: start is the beginning of the smallest part that contains the bound.
    SELECT at, sign, link_start(level, link_bucket(level, at)) AS start FROM tree WHERE NOT found
), total AS (
    SELECT coalesce(sum(n), 0) AS n FROM (
        SELECT sign * before AS n FROM tree
        UNION ALL
        -- Changes of links invited before start that are not folded into the nodes yet.
        SELECT sign * change FROM leaf CROSS JOIN LATERAL (
            SELECT sum(change) AS change FROM link_changes WHERE site_id = :site AND invited_at < start AND :STORED
        ) AS c
        UNION ALL
        -- Links invited from start to the bound, counted one by one.
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
       -- ORDER BY makes the planner read one index entry. EXISTS would ignore the order.
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
