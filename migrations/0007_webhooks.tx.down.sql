DELETE FROM outbox WHERE queue = 'webhooks';
DROP INDEX outbox_retries, outbox_lane_in_flight;
CREATE INDEX outbox_lane_in_flight ON outbox (queue, organisation_id) WHERE dispatched_at IS NOT NULL;
DROP TABLE webhook_attempts, webhook_events, webhook_secrets, webhook_endpoints;
DROP TYPE webhook_event_status;
