ALTER TABLE batch_rows SET (fillfactor = 60);
ALTER TABLE outbox RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay,
    autovacuum_analyze_scale_factor, autovacuum_analyze_threshold);
ALTER TABLE batches RESET (autovacuum_analyze_scale_factor, autovacuum_analyze_threshold);
