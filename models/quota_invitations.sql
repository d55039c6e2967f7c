-- Counts an organisation's customer links in state invited, for the quota of invitations.
--
-- link_totals holds a tree of counts for each Site. The last element of its root (level 6, bucket
-- 0) is the Site's total. link_changes holds the changes that no sweep has added to the tree yet.
-- The count is the sum of both over all Sites.
--
--   :organisation  the organisation
SELECT coalesce(sum(invited.links), 0)::bigint
FROM sites s, LATERAL (
    SELECT t.totals[128] AS links FROM link_totals t
    WHERE t.site_id = s.id AND t.level = 6 AND t.bucket = 0 AND t.state = 'invited'
    UNION ALL
    SELECT c.change FROM link_changes c WHERE c.site_id = s.id AND c.state = 'invited'
) invited
WHERE s.organisation_id = :organisation
