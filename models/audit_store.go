package models

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"partnerbilling/models/postgres"
)

// Violation is one case in which an audit found an invariant broken.
type Violation struct {
	Check   string // the name of the invariant
	Subject string // identifies what breaks it, such as a batch, a row or a rail key
	Detail  string // the values that disagree, for an operator
}

// auditTimeout bounds each check of Audit, which reads whole tables.
const auditTimeout = 6 * time.Hour

// auditLimit is the maximum number of violations that one check reports.
const auditLimit = 100

// auditCheck is an invariant, and the query that finds its violations.
type auditCheck struct {
	name  string
	query postgres.Statement
}

// newAuditChecks makes checks from pairs of a name and a query. A query selects the subject and the
// detail of each violation. tables replaces the query's variables in upper case with the rows to
// check.
func newAuditChecks(checks [][2]string, tables *strings.Replacer) []auditCheck {
	all := make([]auditCheck, len(checks))
	for i, c := range checks {
		query := "SELECT subject, detail FROM (" + tables.Replace(c[1]) + ") AS v (subject, detail) LIMIT :limit"
		all[i] = auditCheck{c[0], postgres.SQL(query)}
	}
	return all
}

var (
	// wholeAudit makes a check read whole tables.
	wholeAudit = strings.NewReplacer(":BATCHES", "batches", ":PAYMENTS", "payment_intents", ":LEDGER", "ledger_entries")
	// windowAudit makes a check read only what was submitted, ended or recorded in the window from
	// :from, inclusive, to :to, exclusive. The ledger is read Site by Site, since its index begins
	// with the Site. OFFSET 0 keeps the planner from flattening that subquery.
	windowAudit = strings.NewReplacer(
		":BATCHES", "(SELECT * FROM batches WHERE submitted_at >= :from AND submitted_at < :to)",
		":PAYMENTS", "(SELECT * FROM payment_intents WHERE final_at >= :from AND final_at < :to)",
		":LEDGER", `(SELECT e.* FROM sites s CROSS JOIN LATERAL (
    SELECT * FROM ledger_entries WHERE site_id = s.id AND recorded_at >= :from AND recorded_at < :to OFFSET 0) e)`)
)

// auditedMillis is auditedHistory in milliseconds, as an SQL expression.
var auditedMillis = strconv.FormatInt(auditedHistory.Milliseconds(), 10) + "::bigint"

// windowedChecks are the invariants of money that can be checked window by window. The ledger still
// has the debits of batches past their retention. Checks that need the rows of such batches leave
// these debits out.
var windowedChecks = [][2]string{
	{"a batch's counters equal its rows", `
SELECT b.id::text, format('settled %s/%s, succeeded %s/%s, amount %s/%s', b.settled_count, r.settled, b.succeeded_count,
       r.succeeded, b.succeeded_amount, r.amount)
FROM :BATCHES b CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE state = 'settled') AS settled,
           count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded,
           coalesce(sum(amount) FILTER (WHERE outcome = 'succeeded'), 0) AS amount, coalesce(sum(amount), 0) AS total
    FROM batch_rows WHERE site_id = b.site_id AND batch_id = b.id) r
WHERE (b.row_count, b.settled_count, b.succeeded_count, b.succeeded_amount, b.total_amount)
   <> (r.n, r.settled, r.succeeded, r.amount, r.total)`},
	{"a batch is settled with its last row", `
SELECT id::text, state::text FROM :BATCHES b
WHERE (state = 'settled') <> (settled_count = row_count) OR (state = 'settled') <> (settled_at IS NOT NULL)`},
	{"a batch's generation is at most that of its reference", `
SELECT b.id::text, b.generation || ', the reference has ' || coalesce(f.generation, 0) FROM :BATCHES b
LEFT JOIN batch_references f ON f.site_id = b.site_id AND f.batch_reference = b.batch_reference
WHERE b.generation <= coalesce(f.generation, 0) IS NOT TRUE`},
	{"a debited row has its ledger entry", debitedRows + `
SELECT r.batch_id || ':' || r.row_index, r.outcome || ', in the ledger ' || coalesce(l.amount, 0)
FROM debited r LEFT JOIN ledger_entries l ON l.rail_key = r.rail_key
WHERE l.amount IS DISTINCT FROM r.amount`},
	{"the ledger has entries of debited rows only", `
WITH entries AS MATERIALIZED (
    SELECT rail_key, site_id, amount, batch_reference, row_reference FROM :LEDGER l WHERE batch_reference IS NOT NULL
), keys AS MATERIALIZED (
    SELECT b.site_id, b.id, b.batch_reference, ` + batchKeySQL + ` AS key
    FROM (SELECT DISTINCT site_id, batch_reference FROM entries) e
    JOIN batches b ON b.site_id = e.site_id AND b.batch_reference = e.batch_reference
), debited AS MATERIALIZED (
    SELECT ` + rowKeySQL + ` AS rail_key FROM keys k JOIN batch_rows r ON r.site_id = k.site_id AND r.batch_id = k.id
    WHERE coalesce(r.corrected_outcome, r.outcome) = 'succeeded'
)
SELECT l.rail_key, l.amount || ', batch ' || l.batch_reference || ' row ' || l.row_reference FROM entries l
JOIN keys k ON k.site_id = l.site_id AND k.batch_reference = l.batch_reference
    AND left(l.rail_key, 35) = 'r1_' || left(encode(k.key, 'hex'), 32)
LEFT JOIN debited d ON d.rail_key = l.rail_key WHERE d.rail_key IS NULL`},
	{"a ledger entry debits railClearing and credits sitePayable", `
SELECT l.rail_key, l.amount || ' debits ' || l.debit_account || ', credits ' || l.credit_account FROM :LEDGER l
WHERE (l.debit_account, l.credit_account) <> ('railClearing', 'sitePayable')`},
	{"a payment intent has ended with one event, which says how", `
SELECT p.id::text, p.transaction_status || ', the event says ' || coalesce(e.transaction_status, 'nothing')
FROM :PAYMENTS p LEFT JOIN webhook_events e
    ON e.organisation_id = p.organisation_id AND e.payment_intent_id = p.id AND NOT e.is_test
WHERE p.transaction_status::text IS DISTINCT FROM e.transaction_status
  AND (p.state <> 'final' OR p.final_at > svc_now() - ` + auditedMillis + `)`}, // older events may be dropped
	{"a settled transaction has its ledger entry", `
SELECT p.transaction_id::text, p.amount_charged || ' charged, in the ledger ' || coalesce(l.amount, 0)
FROM :PAYMENTS p LEFT JOIN ledger_entries l ON l.rail_key = payment_rail_key(p.id)
WHERE p.transaction_status = 'Settled' AND p.amount_charged <> coalesce(l.amount, 0)`},
	{"the ledger has entries of settled transactions only", `
SELECT l.rail_key, coalesce(p.transaction_status::text, p.state::text) FROM :LEDGER l
JOIN payment_intents p ON p.site_id = l.site_id AND p.id = l.payment_intent_id
WHERE p.transaction_status IS DISTINCT FROM 'Settled'`},
}

// auditChecks are the invariants of money and state, checked on whole tables.
var auditChecks = newAuditChecks(slices.Concat(windowedChecks, [][2]string{
	{"every row is terminal at its deadline", `
SELECT b.id::text, b.row_count - b.settled_count || ' rows open' FROM batches b
WHERE b.settled_at IS NULL AND b.settle_by + 60000 <= svc_now()`}, // the sweep has had a minute
	{"an open row has a task", `
SELECT r.batch_id::text, 'row ' || min(r.row_index) FROM batch_rows r
JOIN batches b ON b.site_id = r.site_id AND b.id = r.batch_id AND b.settled_at IS NULL
WHERE r.state <> 'settled' AND NOT EXISTS (
    SELECT FROM outbox o WHERE o.subject_id = r.batch_id AND o.kind = 'debitRows'
      AND r.row_index BETWEEN o.first_row AND o.last_row)
GROUP BY r.batch_id`},
	{"a row in doubt has a task", `
SELECT r.batch_id::text, 'row ' || min(r.row_index) FROM batch_rows r
WHERE r.in_doubt AND NOT EXISTS (
    SELECT FROM outbox o WHERE o.subject_id = r.batch_id AND o.kind = 'debitRows'
      AND r.row_index BETWEEN o.first_row AND o.last_row)
GROUP BY r.batch_id`},
	{"a pending webhook event has its task", `
SELECT e.id::text, 'attempt due at ' || e.next_attempt_at FROM webhook_events e
WHERE e.status = 'pending' AND NOT EXISTS (
    SELECT FROM outbox o WHERE o.id = e.task_id AND o.subject_id = e.id AND o.organisation_id = e.organisation_id
        AND o.kind = 'deliverWebhook' AND o.queue = 'webhooks')`},
	{"a parked event is a pending webhook event, in the round of its task", `
SELECT p.event_id::text, coalesce(e.status::text, 'gone') FROM webhook_slots p
LEFT JOIN webhook_events e ON e.organisation_id = p.organisation_id AND e.id = p.event_id
WHERE p.token IS NULL AND (e.status = 'pending' AND e.task_id = p.task_id) IS NOT TRUE`},
	{"a transaction under way has a task", `
SELECT p.id::text, p.transaction_id::text FROM payment_intents p
WHERE p.state = 'pending' AND NOT EXISTS (
    SELECT FROM outbox o WHERE o.subject_id = p.id AND o.kind = 'settleTransaction')`},
	{"a task has a time or a lease", `
SELECT id::text, kind FROM outbox WHERE (dispatched_at IS NULL) <> (redispatch_after IS NULL)`},
	{"a reference has at most one active link", `
SELECT site_id || ' ' || count(*), min(customer_reference) FROM customer_links
WHERE state IN ('invited', 'linked') GROUP BY site_id, customer_reference HAVING count(*) > 1`},
	{"the counts of links and what is not folded yet are all links", `
SELECT site_id || ' ' || state, sum(links) || ' links, counted ' || sum(counted) FROM (
    SELECT site_id, state, count(*) AS links, 0 AS counted FROM customer_links GROUP BY site_id, state
    UNION ALL SELECT site_id, state, 0, sum(change) FROM link_changes GROUP BY site_id, state
    UNION ALL SELECT site_id, state, 0, sum(totals[128]) FROM link_totals
    WHERE level = 6 GROUP BY site_id, state) AS sides
GROUP BY site_id, state HAVING sum(links) <> sum(counted)`},
	{"a part of the counts and what is not folded yet are its links", withFoldedLinks(`
WITH nodes AS (SELECT DISTINCT site_id, level, bucket FROM link_totals),
counted AS (
    SELECT site_id, level, bucket, part, state, totals[part] - coalesce(totals[part - 1], 0) AS links
    FROM link_totals CROSS JOIN generate_series(1, 128) AS part)
SELECT format('%s %s %s:%s %s', site_id, level, bucket, part, state),
    format('%s links, counted %s', coalesce(l.change, 0), coalesce(c.links, 0))
FROM counted AS c FULL JOIN (:FOLDED) AS l USING (site_id, level, bucket, part, state)
WHERE coalesce(l.change, 0) <> coalesce(c.links, 0)`)},
}), wholeAudit)

// auditWindowChecks are the invariants of money, checked on one window of service time.
var auditWindowChecks = newAuditChecks(windowedChecks, windowAudit)

// batchKeySQL computes the BatchKey of batch b.
const batchKeySQL = `batch_key(b.site_id, b.batch_reference, b.generation)`

// rowKeySQL computes the rail key of row r from its batch's key k.
const rowKeySQL = `'r1_' || left(encode(k.key, 'hex'), 32) || left(encode(sha256(
    int8send(32) || k.key || int8send(octet_length(r.row_reference)) || convert_to(r.row_reference, 'UTF8')
), 'hex'), 32)`

// debitedRows begins a query with a CTE of all debited rows and their rail keys. A row counts as
// debited if its outcome, or the correction of its outcome, is a success.
const debitedRows = `
WITH keys AS MATERIALIZED (
    SELECT b.site_id, b.id, ` + batchKeySQL + ` AS key FROM :BATCHES b
), debited AS MATERIALIZED (
    SELECT r.batch_id, r.row_index, r.amount, coalesce(r.corrected_outcome, r.outcome)::text AS outcome,
           ` + rowKeySQL + ` AS rail_key
    FROM keys k JOIN batch_rows r ON r.site_id = k.site_id AND r.batch_id = k.id
    WHERE coalesce(r.corrected_outcome, r.outcome) = 'succeeded'
)`

// railDebits begins a query with a CTE of the sandbox rail's successful debits.
const railDebits = `
WITH rail AS (
    SELECT key, amount FROM sandbox_debits WHERE status = 'succeeded' AND (key LIKE 'r1\_%' OR key LIKE 'p1\_%')
)`

// sandboxChecks compare the ledger with the sandbox rail's own list of debits. A debit is not
// reported while its row is in progress or in doubt, or its payment is pending: it may reach the
// ledger later.
var sandboxChecks = newAuditChecks([][2]string{
	{"what the rail debited is in the ledger", railDebits + `, keys AS MATERIALIZED (
    SELECT b.site_id, b.id, ` + batchKeySQL + ` AS key FROM batches b
), open AS MATERIALIZED (
    SELECT ` + rowKeySQL + ` AS key
    FROM keys k JOIN batch_rows r ON r.site_id = k.site_id AND r.batch_id = k.id
    WHERE r.state = 'inProgress' OR r.in_doubt
    UNION ALL SELECT payment_rail_key(id) FROM payment_intents WHERE state = 'pending'
)
SELECT rail.key, rail.amount || ' debited, in the ledger ' || coalesce(l.amount, 0)
FROM rail LEFT JOIN ledger_entries l ON l.rail_key = rail.key LEFT JOIN open ON open.key = rail.key
WHERE l.amount IS DISTINCT FROM rail.amount AND open.key IS NULL`},
	// The rail drops older keys.
	{"what is in the ledger the rail debited", railDebits + `
SELECT l.rail_key, l.amount || ' in the ledger, on the rail ' || coalesce(rail.amount, 0)
FROM ledger_entries l LEFT JOIN rail ON rail.key = l.rail_key
WHERE rail.amount IS DISTINCT FROM l.amount AND l.recorded_at > svc_now() - ` + auditedMillis},
}, wholeAudit)

// Audit checks every invariant of money and state on whole tables. It returns the violations, at
// most auditLimit for each check. If withSandbox is set, Audit also compares the ledger with the
// sandbox rail's own list of debits. These comparisons may report debits that are in flight
// meanwhile.
func (s *Store) Audit(ctx context.Context, withSandbox bool) ([]Violation, error) {
	checks := auditChecks
	if withSandbox {
		checks = append(checks[:len(checks):len(checks)], sandboxChecks...)
	}
	var found []Violation
	for _, c := range checks {
		broken, err := s.auditOne(ctx, c)
		if err != nil {
			return nil, wrap("audit: "+c.name, err)
		}
		found = append(found, broken...)
	}
	return found, nil
}

// auditOne runs one check, which may read whole tables. It disables nested loops. Newly filled
// tables have no statistics, and the planner could otherwise read one table once for each row of
// another.
func (s *Store) auditOne(ctx context.Context, c auditCheck) ([]Violation, error) {
	var found []Violation
	err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
		ctx, err := tx.AllowLongStatements(ctx, auditTimeout)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "SET LOCAL enable_nestloop = off; SET LOCAL enable_seqscan = on"); err != nil {
			return err
		}
		found = nil
		return tx.Select(ctx, c.query, postgres.Args{"limit": auditLimit}, &found)
	})
	for i := range found {
		found[i].Check = c.name
	}
	return found, err
}
