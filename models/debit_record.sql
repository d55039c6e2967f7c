-- Store.FinishRows records a worker's results for rows of a batch. The one result row has, as
-- arrays, the indexes and outcomes of the rows that were closed, and whether each was corrected.
--
-- A success counts with any lease or none: it settles an open row, and corrects a row that was
-- settled otherwise. Every other result counts only under the lease. A result that does not follow
-- from the rail's answer counts only in the epoch of its claim.
--
-- Counters, ledger and alerts derive from the updated rows. The task is done if these rows were the
-- last open ones. If the epoch has changed, the database may have lost rows that the worker closed
-- earlier: the task then stays until ParkChunk finds no open row.
--
--   :site, :batch, :task, :lease   ids of the Site, the batch and its task, and the lease token
--   :epoch, :claimed_at            epoch and service time of the claim
--   :remaining                     how many rows must close here for the task to be done
--   :rail_memory                   RailMemory in milliseconds
-- The results, one array a column:
--   :indexes                       row indexes, ascending
--   :outcomes                      outcome, or '' if not final
--   :from_rail                     the outcome follows from the rail's answer
--   :releases                      nothing was debited, and the row may be tried again
--   :retry_after                   delay until the next attempt, in milliseconds
--   :calls                         correction of the count of debit calls
--   :answered                      the rail answered a call
--   :confirming                    the row was already settled, as unconfirmed, at the claim
--   :alerts                        kind of alert, or ''
--   :keys                          rail key
WITH present AS MATERIALIZED (
    SELECT * FROM current_epoch(:rail_memory)
), b AS MATERIALIZED (
    SELECT b.site_id, b.id, b.organisation_id, b.batch_reference, b.currency, b.trace_id,
           (SELECT now FROM service_now) AS now,
           batch_cancelled(b.cancelled_at, b.epoch, (SELECT cancelled_before FROM present)) AS cancelled,
           batch_certain(b.epoch, (SELECT epoch FROM present), (SELECT certain FROM present)) AS certain,
           (SELECT epoch FROM present) = :epoch AS same_epoch
    FROM batches b WHERE b.site_id = :site AND b.id = :batch FOR UPDATE
), v AS MATERIALIZED (
    -- The results that count. MATERIALIZED makes the join with the rows a hash join.
    SELECT v.i, v.calls, v.answered, v.confirming, v.alert, v.key,
           CASE WHEN v.from_rail OR b.same_epoch THEN nullif(v.o, '')::row_outcome END AS outcome,
           v.release AND b.same_epoch AS release, v.release AND b.same_epoch AND b.cancelled AND b.certain AS cancels,
           CASE WHEN v.from_rail OR b.same_epoch THEN v.retry_after ELSE 0 END AS retry_after
    FROM b, unnest(:indexes::int[], :outcomes::text[], :from_rail::bool[], :releases::bool[],
                   :retry_after::bigint[], :calls::int[], :answered::bool[], :confirming::bool[],
                   :alerts::text[], :keys::text[])
        AS v (i, o, from_rail, release, retry_after, calls, answered, confirming, alert, key)
), r AS (
    UPDATE batch_rows r SET
        attempts = r.attempts + v.calls,
        deferrals = r.deferrals + CASE WHEN v.outcome IS NULL THEN 1 ELSE 0 END,
        state = CASE WHEN r.state = 'settled' OR v.outcome IS NOT NULL OR v.cancels THEN 'settled'
                     WHEN v.release THEN 'pending' ELSE r.state END::row_state,
        outcome = CASE WHEN r.state = 'settled' THEN r.outcome
                       WHEN v.outcome = 'timedOut' AND b.cancelled THEN 'cancelled'
                       WHEN v.outcome IS NOT NULL THEN v.outcome
                       WHEN v.cancels THEN 'cancelled' END,
        corrected_outcome = CASE WHEN r.state <> 'settled' THEN NULL
                                 WHEN v.outcome = 'timedOut' AND b.cancelled THEN 'cancelled'
                                 ELSE nullif(v.outcome, 'unconfirmed') END,
        settled_at = CASE WHEN r.state = 'settled' THEN r.settled_at
                          WHEN v.outcome IS NOT NULL OR v.cancels THEN b.now END,
        in_doubt = v.outcome IS NULL AND (r.state = 'settled' OR NOT v.release),
        called_at = CASE WHEN v.answered THEN greatest(r.called_at, :claimed_at) ELSE r.called_at END,
        next_attempt_at = CASE WHEN v.outcome IS NULL AND NOT v.cancels THEN b.now + v.retry_after END,
        lease_token = NULL, lease_until = NULL
    FROM v, b
    -- Selects by the arguments, not by columns of b, so that only the batch's partition is opened.
    WHERE r.site_id = :site AND r.batch_id = :batch AND r.row_index = v.i
      AND r.row_index BETWEEN (:indexes::int[])[1] AND (:indexes::int[])[cardinality(:indexes::int[])]
      AND (r.lease_token = :lease AND (r.state = 'inProgress' OR r.state = 'settled' AND r.in_doubt)
        OR v.outcome = 'succeeded' AND coalesce(r.corrected_outcome, r.outcome) IS DISTINCT FROM 'succeeded')
    RETURNING r.row_index, r.amount, r.row_reference, r.customer_reference, r.link_id, v.key, v.alert, v.confirming,
              coalesce(r.corrected_outcome, r.outcome) AS outcome,
              r.state = 'settled' AND NOT r.in_doubt AS closed, r.corrected_outcome IS NOT NULL AS corrected
), n AS (
    SELECT count(*) FILTER (WHERE closed AND NOT corrected AND NOT confirming)::int AS settled,
           count(*) FILTER (WHERE outcome = 'succeeded' AND NOT corrected)::int AS succeeded,
           coalesce(sum(amount) FILTER (WHERE outcome = 'succeeded' AND NOT corrected), 0)::bigint AS amount,
           count(*) FILTER (WHERE closed) AS closed,
           array_agg(row_index) FILTER (WHERE closed) AS indexes,
           array_agg(outcome::text) FILTER (WHERE closed) AS outcomes,
           array_agg(corrected) FILTER (WHERE closed) AS corrections, bool_or(corrected OR alert <> '') AS reports
    FROM r
), counted AS (
    UPDATE batches c SET settled_count = c.settled_count + n.settled,
        succeeded_count = c.succeeded_count + n.succeeded,
        succeeded_amount = c.succeeded_amount + n.amount,
        state = CASE WHEN c.settled_count + n.settled = c.row_count THEN 'settled'::batch_state ELSE c.state END,
        settled_at = CASE WHEN c.settled_count + n.settled = c.row_count THEN b.now END
    FROM n, b WHERE c.site_id = b.site_id AND c.id = b.id AND n.settled > 0
), ledger AS (
    INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference, row_reference,
                                customer_reference, link_id)
    SELECT r.key, b.site_id, b.now, r.amount, b.currency, b.batch_reference, r.row_reference, r.customer_reference,
           r.link_id
    FROM r, b WHERE r.outcome = 'succeeded'
), reported AS MATERIALIZED (
    -- Functions handle these rare cases. The trigger batches_settle announces a batch that settles.
    SELECT count(CASE WHEN r.corrected
                      THEN announce_correction(b.organisation_id, b.site_id, b.id, r.row_index, b.trace_id) END),
           count(raise_alert(CASE WHEN r.corrected THEN 'lateTruth' ELSE r.alert END,
               -- A missing master key concerns many rows: one alert per batch.
               CASE WHEN r.alert = 'partyUnreadable' AND NOT r.corrected THEN b.id::text ELSE r.key END,
               b.organisation_id, b.site_id,
               format('row %s of batch %s: %s', r.row_reference, b.batch_reference, r.outcome), b.trace_id))
    FROM r, b WHERE (SELECT reports FROM n) AND (r.corrected OR r.alert <> '')
), done AS (
    DELETE FROM outbox WHERE id = :task AND (SELECT closed FROM n) >= :remaining AND (SELECT same_epoch FROM b)
)
SELECT indexes, outcomes, corrections FROM n, reported
