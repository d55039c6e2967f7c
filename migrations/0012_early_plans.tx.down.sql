ALTER TABLE webhook_events RESET (autovacuum_analyze_scale_factor, autovacuum_analyze_threshold);
DROP INDEX outbox_oldest;
CREATE INDEX outbox_oldest ON outbox (queue, available_at) WHERE dispatched_at IS NULL;
DROP INDEX outbox_in_flight;
CREATE INDEX outbox_in_flight ON outbox (redispatch_after) WHERE dispatched_at IS NOT NULL;
