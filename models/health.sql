-- Store.Health reads the health of the database server, of webhook endpoints and of recurring work.
-- The one result row has the fields of models.Health: ages in milliseconds, replication_lag in
-- bytes. The role needs the rights of pg_read_all_stats. Without them, the transactions of other
-- roles are left out, standbys counts every WAL sender, and replication_lag is -1 if there is one.
--
--   :most      the number at which counting stops
--   :failures  the number of consecutive failures from which an endpoint counts as failing
SELECT
    (SELECT count(*) FROM (
        SELECT FROM webhook_endpoints WHERE failures >= :failures AND disabled_at IS NULL LIMIT :most) few)
        AS failing_endpoints,
    -- A recurring task ends within seconds after it is due, unless no worker serves its queue.
    coalesce(greatest(0, (SELECT now FROM service_now) - (
        SELECT min((SELECT o.available_at FROM outbox o WHERE o.id = w.task_id)) FROM recurring_work w)), 0)
        AS oldest_recurring,
    -- Prepared transactions count, since they hold back vacuum as open transactions do.
    coalesce(greatest(0, 1000 * extract(epoch FROM statement_timestamp() - least(
        (SELECT min(xact_start) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()),
        (SELECT min(prepared) FROM pg_prepared_xacts)))), 0)::bigint AS oldest_transaction,
    -- Base backups and archives of WAL replay nothing: their replay_lsn is NULL. A NULL state shows
    -- that the role may not see the WAL sender.
    (SELECT count(*) FROM pg_stat_replication WHERE replay_lsn IS NOT NULL OR state IS NULL) AS standbys,
    (SELECT CASE WHEN count(*) = count(state)
            THEN coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)), 0) ELSE -1 END
        FROM pg_stat_replication)::bigint AS replication_lag,
    (SELECT age(datfrozenxid) / 2147483648.0 FROM pg_database WHERE datname = current_database())::float8
        AS wraparound,
    coalesce((SELECT last_failed_time > coalesce(last_archived_time, '-infinity') FROM pg_stat_archiver), false)
        AS archive_failing
