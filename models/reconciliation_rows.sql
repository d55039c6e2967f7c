-- Finds the batch rows of rail keys. A key is a digest, so the statement computes the digests of
-- the rows of their batches.
--
--   :keys      rail keys
--   :batches   the 16 bytes of each key that identify its batch
--   BATCH_KEY  the key of a batch, of which rail keys hold the first 16 bytes
--   ROW_KEY    the rail key of a row
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
