-- Returns how long the oldest due task of each organisation in each queue has waited for dispatch,
-- in milliseconds, the longest wait first. Store.PartnerBacklogs runs it.
--
--   :queues  the queues
--   :sites   how many Sites of each queue, the first ones by organisation id and Site id
SELECT l.queue, l.organisation_id, (SELECT now FROM service_now) - min(l.oldest_at) AS oldest_due
FROM waiting_lanes(:queues::text[], :sites) l WHERE l.oldest_at < (SELECT now FROM service_now)
GROUP BY l.queue, l.organisation_id
ORDER BY oldest_due DESC, l.queue, l.organisation_id
