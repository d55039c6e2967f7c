-- The release before finds what waits by itself: its tasks ask for their turn again.
UPDATE outbox o SET available_at = svc_now(), dispatched_at = NULL, redispatch_after = NULL
FROM webhook_places p WHERE p.until IS NULL AND o.id = p.task_id;
DROP TABLE webhook_places;
