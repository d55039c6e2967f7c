-- Locks the events of tasks, and the endpoints that may receive them, and waits until no other
-- transaction holds them. Store.ClaimWebhooks runs it before a claim that must not skip locked
-- events. The result rows have no columns.
--
--   :tasks  the ids of the tasks
WITH events AS MATERIALIZED (
    SELECT e.organisation_id, CASE WHEN e.is_test THEN e.endpoint_site_id ELSE e.site_id END AS site_id, e.is_test
    FROM unnest(:tasks::uuid[]) AS a (task)
    CROSS JOIN LATERAL (SELECT organisation_id, subject_id FROM outbox x WHERE x.id = a.task LIMIT 1) o
    CROSS JOIN LATERAL (
        SELECT * FROM webhook_events x WHERE x.organisation_id = o.organisation_id AND x.id = o.subject_id
        LIMIT 1 FOR UPDATE) e
), endpoints AS (
    -- A test can go only to the tested endpoint. Other events go to the endpoint of their Site or
    -- to the default endpoint, whose site_id is zero.
    SELECT organisation_id, site_id FROM events
    UNION
    SELECT organisation_id, '00000000-0000-0000-0000-000000000000' FROM events WHERE NOT is_test
)
SELECT FROM endpoints k
JOIN webhook_endpoints w ON w.organisation_id = k.organisation_id AND w.site_id = k.site_id
ORDER BY w.organisation_id, w.site_id FOR UPDATE OF w
