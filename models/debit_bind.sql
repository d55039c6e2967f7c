-- Store.ClaimChunk binds claimed rows without a customer link to the active links of their
-- references. The statement returns the bound rows with their accounts.
--
--   :site, :batch   the ids of the Site and the batch
--   :rows           the indexes of the rows
--   :lease          the lease token of the rows
WITH found AS MATERIALIZED (
    -- One look-up for each row, since a reference has at most one active link.
    SELECT r.row_index, l.id, l.state, l.party
    FROM batch_rows r CROSS JOIN LATERAL (
        SELECT x.id, x.state, x.party FROM customer_links x
        WHERE x.site_id = :site AND x.customer_reference = r.customer_reference
          AND x.state IN ('invited', 'linked')
          AND (x.state = 'linked' OR x.expires_at > (SELECT now FROM service_now)) LIMIT 1) l
    WHERE r.site_id = :site AND r.batch_id = :batch AND r.row_index = ANY (:rows::int[]) AND r.lease_token = :lease
      AND r.link_id IS NULL
), bound AS (
    UPDATE batch_rows r SET link_id = f.id FROM found f
    WHERE r.site_id = :site AND r.batch_id = :batch AND r.row_index = f.row_index AND r.lease_token = :lease
      AND r.link_id IS NULL
    RETURNING r.row_index, f.id, f.state, f.party
)
-- The constants complete the columns of an Eligibility. The caller uses only the account.
SELECT row_index, 'attempt' AS phase, false AS cancelled, false AS paused, id AS link_id, state = 'linked' AS linked,
       party
FROM bound
