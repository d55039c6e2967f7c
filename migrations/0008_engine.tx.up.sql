-- A row is written three times: submitted, claimed, settled. With room for all three its page takes them without a new index
-- entry (HOT), which at 60 every third update missed.
ALTER TABLE batch_rows SET (fillfactor = 32);

-- A task lives for a second, and four of its versions with it. Left to the defaults, the dispatcher's scans would step over the
-- dead ones of a fifth of a large backlog before they are removed.
ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 500);

-- Batches are found by Site and id; plans must know that before a table that was small has grown tenfold.
ALTER TABLE batches SET (autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 500);
