DELETE FROM outbox WHERE kind IN ('deliverWebhook', 'releaseWebhooks');
DELETE FROM recurring_work WHERE kind = 'releaseWebhooks';
DROP INDEX outbox_retries, outbox_lane_in_flight;
CREATE INDEX outbox_lane_in_flight ON outbox (queue, organisation_id) WHERE dispatched_at IS NOT NULL;
DROP TABLE webhook_attempts, webhook_events, webhook_secrets, webhook_endpoints;
DROP TYPE webhook_event_status;
