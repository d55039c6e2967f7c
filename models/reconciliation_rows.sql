-- Finds the batch rows of rail keys, for Store.DebitSubjects. A rail key consists of digests. The
-- statement finds the batches by the first digest, and then computes the rail keys of their rows.
--
--   :keys      rail keys
--   :batches   the batches of :keys: the 16 bytes of a rail key that identify its batch
--   BATCH_KEY  SQL for the key of a batch; its first 16 bytes are part of the rail keys of its rows
--   ROW_KEY    SQL for the rail key of a row
--
-- reconciliation_store.go replaces the variables in upper case.
WITH named AS MATERIALIZED (
    -- Uses the index batches_rail_key.
    SELECT b.site_id, b.id, b.batch_reference, :BATCH_KEY AS key
    FROM batches b WHERE substr(:BATCH_KEY, 1, 16) = ANY (:batches::bytea[])
), keyed AS (
    SELECT k.site_id, k.batch_reference, r.row_reference, r.state, r.in_doubt, r.outcome, r.corrected_outcome,
           :ROW_KEY AS rail_key
    FROM named k JOIN batch_rows r ON r.site_id = k.site_id AND r.batch_id = k.id
)
-- An unconfirmed row without a correction is open: the rail or an operator has yet to decide.
SELECT r.rail_key, r.site_id, r.batch_reference, r.row_reference,
       r.state <> 'settled' OR r.in_doubt OR r.outcome = 'unconfirmed' AND r.corrected_outcome IS NULL AS open,
       coalesce(r.corrected_outcome, r.outcome)::text AS outcome
FROM keyed r WHERE r.rail_key = ANY (:keys::text[])
