-- Reads the health of the server and of webhook endpoints. The statistics of other roles' sessions
-- and of standbys need the role pg_read_all_stats; without it they are left out.
--
--   :most      the number at which counting stops
--   :failures  the failures in a row from which an endpoint counts as failing
SELECT
    (SELECT count(*) FROM (
        SELECT FROM webhook_endpoints WHERE failures >= :failures AND disabled_at IS NULL LIMIT :most) few)
        AS failing_endpoints,
    -- A recurring task is finished within seconds, unless no worker serves its queue.
    coalesce(greatest(0, (SELECT now FROM service_now) - (
        SELECT min((SELECT o.available_at FROM outbox o WHERE o.id = w.task_id)) FROM recurring_work w)), 0)
        AS oldest_recurring,
    -- A prepared transaction holds back vacuum as an open one does.
    coalesce(greatest(0, 1000 * extract(epoch FROM statement_timestamp() - least(
        (SELECT min(xact_start) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()),
        (SELECT min(prepared) FROM pg_prepared_xacts)))), 0)::bigint AS oldest_transaction,
    (SELECT count(*) FROM pg_stat_replication) AS standbys,
    (SELECT CASE WHEN count(*) = count(replay_lsn)
            THEN coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)), 0) ELSE -1 END
        FROM pg_stat_replication)::bigint AS replication_lag,
    (SELECT age(datfrozenxid) / 2147483648.0 FROM pg_database WHERE datname = current_database())::float8
        AS wraparound,
    coalesce((SELECT last_failed_time > coalesce(last_archived_time, '-infinity') FROM pg_stat_archiver), false)
        AS archive_failing
