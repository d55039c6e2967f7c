-- A plan is kept until its table's statistics change. While the outbox is all but empty every index of it looks alike, and a plan made
-- then that takes the wrong one reads, for each of a thousand lanes, all of the backlog that comes later. So that there is no
-- wrong one, whole-queue questions and lane-by-lane ones are told apart by their condition: redispatch_after is NULL exactly while
-- dispatched_at is.
DROP INDEX outbox_oldest;
CREATE INDEX outbox_oldest ON outbox (queue, available_at) WHERE redispatch_after IS NULL;
DROP INDEX outbox_in_flight;
CREATE INDEX outbox_in_flight ON outbox (redispatch_after) WHERE redispatch_after IS NOT NULL;

-- As for the outbox: plans must know early that a table that was empty no longer is.
ALTER TABLE webhook_events SET (autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 500);
