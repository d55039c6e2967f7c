-- Counts an organisation's links in state invited. It adds up the totals of the organisation's
-- Sites and the changes that are not folded yet. The last element of a root is a Site's total.
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
