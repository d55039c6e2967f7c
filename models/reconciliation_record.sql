-- Records a step of the comparison of ledger and rail, for Store.RecordComparison: moves
-- compared_to, stores and removes differences, and opens and closes their alerts. It returns false
-- and records nothing if compared_to differs from :from. Concurrent steps that leave compared_to as
-- it is are all recorded. A difference that is found again with the same kind opens no alert,
-- because an operator may have closed it. An open alert gets the new detail.
--
--   :from, :to                  compared_to before (0: none) and after
--   :keys, :kinds, :sites, :debited_at, :details
--                               the differences, one array for each column
--   :resolved                   rail keys that no longer have a difference
--   :min_recheck, :max_recheck  minRecheck and maxRecheck, in milliseconds
--   :in_flight                  DifferenceInFlight
--   :gap                        the detail of an alert about a time that was never compared, or ''
WITH moved AS MATERIALIZED (
    -- No row if another comparison has moved compared_to meanwhile: the step then records nothing.
    UPDATE reconciliation SET compared_to = :to WHERE coalesce(compared_to, 0) = :from
    RETURNING (SELECT now FROM service_now) AS now
), found AS MATERIALIZED (
    -- The differences, each with the kind and the time that an earlier step has stored.
    SELECT f.key, f.kind, nullif(f.site_id, '00000000-0000-0000-0000-000000000000') AS site_id,
           nullif(f.debited_at, 0) AS debited_at, f.detail, m.now,
           d.kind AS earlier_kind, coalesce(d.found_at, m.now) AS found_at
    FROM moved m
    CROSS JOIN unnest(:keys::text[], :kinds::text[], :sites::uuid[], :debited_at::bigint[], :details::text[])
        AS f (key, kind, site_id, debited_at, detail)
    LEFT JOIN reconciliation_differences d ON d.rail_key = f.key
), stored AS (
    -- A difference is checked again after an eighth of its age, but at least :min_recheck and at
    -- most :max_recheck.
    INSERT INTO reconciliation_differences AS d (rail_key, kind, site_id, debited_at, detail, found_at, next_check_at)
    SELECT key, kind, site_id, debited_at, detail, found_at,
           now + least(greatest((now - found_at) / 8, :min_recheck), :max_recheck)
    FROM found ORDER BY key
    ON CONFLICT (rail_key) DO UPDATE SET kind = excluded.kind, site_id = coalesce(excluded.site_id, d.site_id),
        debited_at = coalesce(excluded.debited_at, d.debited_at), detail = excluded.detail,
        next_check_at = excluded.next_check_at
), removed AS (
    -- Differences that a later comparison no longer finds.
    DELETE FROM reconciliation_differences d USING moved m WHERE d.rail_key = ANY (:resolved::text[])
    RETURNING d.rail_key AS key, d.kind AS earlier_kind, m.now
), closed AS (
    -- The alerts of differences that are gone, or that changed their kind.
    UPDATE alerts a SET closed_at = e.now
    FROM (
        SELECT key, earlier_kind, now FROM found WHERE earlier_kind <> kind
        UNION ALL
        SELECT key, earlier_kind, now FROM removed) AS e
    WHERE a.kind = e.earlier_kind AND a.subject = e.key AND a.closed_at IS NULL
), updated AS (
    -- The open alerts of differences that are found again get the new detail.
    UPDATE alerts a SET detail = f.detail FROM found f
    WHERE f.earlier_kind = f.kind AND a.kind = f.kind AND a.subject = f.key AND a.closed_at IS NULL
        AND a.detail <> f.detail
), raised AS MATERIALIZED (
    -- A debit in flight raises no alert.
    SELECT count(raise_alert(f.kind, f.key, s.organisation_id, f.site_id, f.detail, ''))
    FROM found f LEFT JOIN sites s ON s.id = f.site_id
    WHERE f.kind <> :in_flight AND f.earlier_kind IS DISTINCT FROM f.kind
), gap AS MATERIALIZED (
    SELECT count(raise_alert('reconciliationGap', m.now::text, NULL, NULL, :gap, '')) FROM moved m WHERE :gap <> ''
)
SELECT EXISTS (SELECT FROM moved) AS moved FROM raised, gap
