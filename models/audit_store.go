package models

import (
	"context"

	"github.com/uptrace/bun"
)

// Violation is one broken promise that an audit found.
type Violation struct {
	Check   string // which promise
	Subject string // whose: a batch, a row, a payment intent, a source
	Detail  string
}

// auditLimit is the most violations that one check reports.
const auditLimit = 100

// auditChecks are the promises about money and state, each as a query of those who break it. Batches that are gone after
// their retention stay in the ledger and on the rail; checks that need their rows leave them out.
var auditChecks = []struct{ name, query string }{
	{"a batch's counters equal its rows", `
SELECT b.id::text, format('settled %s/%s, succeeded %s/%s, amount %s/%s', b.settled_count, r.settled, b.succeeded_count,
       r.succeeded, b.succeeded_amount, r.amount)
FROM batches b CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE state = 'settled') AS settled,
           count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded,
           coalesce(sum(amount) FILTER (WHERE outcome = 'succeeded'), 0) AS amount, coalesce(sum(amount), 0) AS total
    FROM batch_rows WHERE site_id = b.site_id AND batch_id = b.id) r
WHERE (b.row_count, b.settled_count, b.succeeded_count, b.succeeded_amount, b.total_amount)
   <> (r.n, r.settled, r.succeeded, r.amount, r.total)`},
	{"a batch is settled with its last row", `
SELECT id::text, state::text FROM batches
WHERE (state = 'settled') <> (settled_count = row_count) OR (state = 'settled') <> (settled_at IS NOT NULL)`},
	{"every row is terminal at its deadline", `
SELECT b.id::text, b.row_count - b.settled_count || ' rows open' FROM batches b
WHERE b.settled_at IS NULL AND b.settle_by + 60000 <= svc_now()`},
	{"an open row has a task", `
SELECT DISTINCT r.batch_id::text, 'row ' || min(r.row_index) FROM batch_rows r
JOIN batches b ON b.site_id = r.site_id AND b.id = r.batch_id AND b.settled_at IS NULL
WHERE r.state <> 'settled' AND NOT EXISTS (
    SELECT FROM outbox o WHERE o.subject_id = r.batch_id AND r.row_index BETWEEN o.first_row AND o.last_row)
GROUP BY r.batch_id`},
	{"the ledger balances per source and currency", `
SELECT source_id || ':' || source_index, 'sums to ' || sum(amount) FROM ledger_entries
GROUP BY source_id, source_index, currency HAVING sum(amount) <> 0`},
	{"a debited row has its ledger entries", `
SELECT r.batch_id || ':' || r.row_index, coalesce(r.corrected_outcome, r.outcome)::text || ', in the ledger ' || coalesce(l.amount, 0)
FROM batch_rows r LEFT JOIN ledger_entries l
    ON l.source_id = r.batch_id AND l.source_index = r.row_index AND l.account = 'railClearing'
WHERE coalesce(r.corrected_outcome, r.outcome) = 'succeeded' AND l.amount IS DISTINCT FROM r.amount`},
	{"the ledger has entries of debited rows only", `
SELECT r.batch_id || ':' || r.row_index, coalesce(r.corrected_outcome::text, r.outcome::text, 'open') FROM ledger_entries l
JOIN batch_rows r ON r.site_id = l.site_id AND r.batch_id = l.source_id AND r.row_index = l.source_index
WHERE l.account = 'railClearing' AND coalesce(r.corrected_outcome, r.outcome) IS DISTINCT FROM 'succeeded'`},
	{"a pending webhook event has its task", `
SELECT e.id::text, 'attempt due at ' || e.next_attempt_at FROM webhook_events e
WHERE e.status = 'pending' AND NOT EXISTS (SELECT FROM outbox o WHERE o.id = e.task_id AND o.subject_id = e.id)`},
	{"who waits for an endpoint is a pending webhook event, in the round that its task is of", `
SELECT p.event_id::text, coalesce(e.status::text, 'gone') FROM webhook_places p
LEFT JOIN webhook_events e ON e.organisation_id = p.organisation_id AND e.id = p.event_id
WHERE p.token IS NULL AND (e.status = 'pending' AND e.task_id = p.task_id) IS NOT TRUE`},
	{"a transaction under way has a task", `
SELECT p.id::text, p.transaction_id::text FROM payment_intents p
WHERE p.state = 'pending' AND NOT EXISTS (SELECT FROM outbox o WHERE o.subject_id = p.id AND o.kind = 'settleTransaction')`},
	{"a payment intent has ended with one event, which says how", `
SELECT p.id::text, p.transaction_status || ', the event says ' || coalesce(e.transaction_status, 'nothing')
FROM payment_intents p LEFT JOIN webhook_events e
    ON e.organisation_id = p.organisation_id AND e.payment_intent_id = p.id AND NOT e.is_test
WHERE p.transaction_status::text IS DISTINCT FROM e.transaction_status
  AND (p.state <> 'final' OR p.final_at > svc_now() - 30::bigint * 86400000)`}, // older events go
	{"a settled transaction has its ledger entries", `
SELECT p.transaction_id::text, p.amount_charged || ' charged, in the ledger ' || coalesce(l.amount, 0)
FROM payment_intents p LEFT JOIN ledger_entries l
    ON l.source_id = p.transaction_id AND l.source_index = 0 AND l.account = 'railClearing'
WHERE p.transaction_status = 'Settled' AND p.amount_charged <> coalesce(l.amount, 0)`},
	{"the ledger has entries of settled transactions only", `
SELECT p.transaction_id::text, coalesce(p.transaction_status::text, 'pending') FROM ledger_entries l
JOIN payment_intents p ON p.site_id = l.site_id AND p.transaction_id = l.source_id
WHERE l.account = 'railClearing' AND p.transaction_status IS DISTINCT FROM 'Settled'`},
	{"a reference has at most one active link", `
SELECT site_id || ' ' || count(*), min(customer_reference) FROM customer_links
WHERE state IN ('invited', 'linked') GROUP BY site_id, customer_reference HAVING count(*) > 1`},
	{"the counts of links and what is not folded yet are all links", `
SELECT site_id || ' ' || state, sum(links) || ' links, counted ' || sum(counted) FROM (
    SELECT site_id, state, count(*) AS links, 0 AS counted FROM customer_links GROUP BY site_id, state
    UNION ALL SELECT site_id, state, 0, sum(change) FROM link_changes GROUP BY site_id, state
    UNION ALL SELECT site_id, state, 0, sum(totals[128]) FROM link_totals WHERE level = 6 GROUP BY site_id, state) AS sides
GROUP BY site_id, state HAVING sum(links) <> sum(counted)`},
	{"a part of the counts and what is not folded yet are its links", `
WITH nodes AS (SELECT DISTINCT site_id, level, bucket FROM link_totals),
counted AS (
    SELECT site_id, level, bucket, part, state, totals[part] - coalesce(totals[part - 1], 0) AS links
    FROM link_totals CROSS JOIN generate_series(1, 128) AS part)
SELECT format('%s %s %s:%s %s', site_id, level, bucket, part, state),
    format('%s links, counted %s', coalesce(l.change, 0), coalesce(c.links, 0))
FROM counted AS c FULL JOIN (` + foldedLinks + `) AS l USING (site_id, level, bucket, part, state)
WHERE coalesce(l.change, 0) <> coalesce(c.links, 0)`},
}

// railDebits are the sandbox rail's successful debits, their keys turned into the ledger's sources again: batch and row, or
// a transaction.
const railDebits = `
WITH rail AS (
    SELECT key, amount, split_part(substr(key, 5), ':', 1)::uuid AS source_id,
           coalesce(nullif(split_part(key, ':', 2), ''), '0')::int AS source_index
    FROM sandbox_debits WHERE status = 'succeeded' AND (key LIKE 'bat\_%' OR key LIKE 'txn\_%')
)`

// sandboxChecks hold the books against the sandbox rail's own list. What has its answer on the way is left out.
var sandboxChecks = []struct{ name, query string }{
	{"what the rail debited is in the ledger", railDebits + `
SELECT rail.key, rail.amount || ' debited, in the ledger ' || coalesce(l.amount, 0) FROM rail
LEFT JOIN ledger_entries l ON l.source_id = rail.source_id AND l.source_index = rail.source_index AND l.account = 'railClearing'
LEFT JOIN batch_rows r ON r.batch_id = rail.source_id AND r.row_index = rail.source_index
LEFT JOIN payment_intents p ON p.transaction_id = rail.source_id
WHERE l.amount IS DISTINCT FROM rail.amount AND r.state IS DISTINCT FROM 'inProgress' AND p.state IS DISTINCT FROM 'pending'
  AND NOT (r.outcome = 'unconfirmed' AND r.corrected_outcome IS NULL)`},
	{"what is in the ledger the rail debited", railDebits + `
SELECT l.source_id || ':' || l.source_index, l.amount || ' in the ledger, on the rail ' || coalesce(rail.amount, 0)
FROM ledger_entries l LEFT JOIN rail ON rail.source_id = l.source_id AND rail.source_index = l.source_index
WHERE l.account = 'railClearing' AND rail.amount IS DISTINCT FROM l.amount`},
}

// Audit checks every promise about money and state and returns what breaks them, at most auditLimit a check. withSandbox
// holds the books against the sandbox rail's own list as well. Debits that are on their way while it runs can show as
// violations of the rail's checks; a quiet service has none.
func (s *Store) Audit(ctx context.Context, withSandbox bool) ([]Violation, error) {
	checks := auditChecks
	if withSandbox {
		checks = append(checks[:len(checks):len(checks)], sandboxChecks...)
	}
	var found []Violation
	for _, c := range checks {
		broken, err := s.auditOne(ctx, c.name, c.query)
		if err != nil {
			return nil, wrap("audit: "+c.name, err)
		}
		found = append(found, broken...)
	}
	return found, nil
}

// auditOne runs one check. It reads whole tables, for as long as that takes; the planner, which may know nothing yet of tables that
// have just been filled, must not choose to read one of them for each row of another.
func (s *Store) auditOne(ctx context.Context, name, query string) ([]Violation, error) {
	var found []Violation
	err := s.inTx(ctx, func(tx bun.Tx) error {
		if _, err := tx.Tx.ExecContext(ctx, "SET LOCAL statement_timeout = 0; SET LOCAL enable_nestloop = off; SET LOCAL enable_seqscan = on"); err != nil {
			return err
		}
		rows, err := tx.Tx.QueryContext(ctx, query+" LIMIT $1", auditLimit)
		if err != nil {
			return err
		}
		found, err = scanAll(rows, func(v *Violation) []any { v.Check = name; return []any{&v.Subject, &v.Detail} })
		return err
	})
	return found, err
}
