package models_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// partitioned is a database whose partitions a test changes.
type partitioned struct {
	*models.Store
	t    *testing.T
	site models.Site
}

func newPartitioned(t *testing.T) *partitioned {
	store := modelstest.Open(t)
	return &partitioned{store, t, modelstest.Site(t, store)}
}

func (p *partitioned) exec(query string, args ...any) {
	p.t.Helper()
	_, err := p.DB().ExecContext(p.t.Context(), query, args...)
	must(p.t, err)
}

func (p *partitioned) strings(query string, args ...any) (all []string) {
	p.t.Helper()
	must(p.t, p.DB().NewRaw(query, args...).Scan(p.t.Context(), &all))
	return all
}

// id returns an id of a time before now.
func (p *partitioned) id(ago time.Duration) (id uuid.UUID) {
	p.t.Helper()
	must(p.t, p.DB().NewRaw(`SELECT (left(id_at(now() - ? * interval '1 s')::text, 14) || right(?, 22))::uuid`,
		int64(ago.Seconds()), uuid.NewString()).Scan(p.t.Context(), &id))
	return id
}

// make makes the partition of a table that holds ids of a time before now.
func (p *partitioned) make(table, period string, ago time.Duration) (name string) {
	p.t.Helper()
	p.exec(`SELECT make_partition(?0, ?1, date_trunc(?1, now() - ?2 * interval '1 s', 'UTC'), 0)`,
		table, period, int64(ago.Seconds()))
	return p.strings(`
SELECT name FROM partitions WHERE parent = ? AND id_at(now() - ? * interval '1 s') BETWEEN lowest AND beyond`,
		table, int64(ago.Seconds()))[0]
}

func (p *partitioned) row(batch uuid.UUID) {
	p.exec(`INSERT INTO batch_rows (site_id, batch_id, row_index, amount, customer_reference, row_reference, state,
			outcome, settled_at)
		VALUES (?, ?, 0, 1, 'ada', 'row', 'settled', 'declined', 1)`, p.site.ID, batch)
}

func (p *partitioned) openAlerts() []string {
	return p.strings("SELECT subject FROM alerts WHERE kind = 'partitionsMissing' AND closed_at IS NULL ORDER BY 1")
}

// A missing partition is made, with the rows that the _default holds for it. While a transaction
// locks the table, the call gives up soon and raises an alert, which the next one closes.
func TestMakePartitions(t *testing.T) {
	t.Parallel()
	p := newPartitioned(t)
	all := p.strings("SELECT name FROM partitions ORDER BY name")
	const week = 7 * 24 * time.Hour
	next := p.strings(`
SELECT name FROM partitions WHERE parent = 'batch_rows' AND lowest > id_at(now()) ORDER BY lowest`)
	if len(next) != 2 {
		t.Fatalf("%d partitions ahead", len(next))
	}
	p.exec("DROP TABLE " + strings.Join(next, ", "))
	batch := p.id(-week)
	p.row(batch)

	tx, err := p.DB().BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "SELECT FROM batch_rows")
	must(t, err)
	must(t, p.MakePartitions(t.Context()))
	if diff := cmp.Diff([]string{"batch_rows", "batch_rows_default"}, p.openAlerts()); diff != "" {
		t.Errorf("alerts while the table is locked (-want +got):\n%s", diff)
	}
	must(t, tx.Rollback())

	must(t, p.MakePartitions(t.Context()))
	if diff := cmp.Diff(all, p.strings("SELECT name FROM partitions ORDER BY name")); diff != "" {
		t.Errorf("partitions (-want +got):\n%s", diff)
	}
	in := p.strings("SELECT tableoid::regclass::text FROM batch_rows WHERE batch_id = ?", batch)
	if diff := cmp.Diff(next[:1], in); diff != "" {
		t.Errorf("the row is in (-want +got):\n%s", diff)
	}
	if open := p.openAlerts(); len(open) > 0 {
		t.Errorf("open alerts %v", open)
	}
	// Partitions are alike, whichever way they were made.
	options := p.strings(`SELECT DISTINCT coalesce(reloptions::text, '') FROM pg_class
		WHERE relname = 'batch_rows_default' OR relname = ?`, next[0])
	if len(options) != 1 {
		t.Errorf("storage parameters %v", options)
	}
}

func (p *partitioned) sweep() {
	p.t.Helper()
	for _, step := range p.RetentionSteps() {
		for n := 500; n >= 500; {
			var err error
			n, err = step(p.t.Context(), 500)
			must(p.t, err)
		}
	}
}

// A step removes batches whose rows go with their partition together, whatever their number of
// rows.
func TestBatchesOfAPartitionGoTogether(t *testing.T) {
	t.Parallel()
	p := newPartitioned(t)
	const age = models.BatchRetention // the partition has begun before, and ends later
	name := p.make("batch_rows", "week", age)
	for i := range 3 {
		id := p.id(age)
		p.exec(`INSERT INTO batches (site_id, id, organisation_id, batch_reference, generation, epoch, state, row_count,
				settled_count, total_amount, currency, submitted_at, settle_by, settled_at, fingerprint)
			VALUES (?, ?, ?, ?, 1, 1, 'settled', 1000, 1000, 1, 'AUD', 1, 1, 1, '')`,
			p.site.ID, id, p.site.OrganisationID, i)
		p.row(id)
	}
	n, err := p.DropOldBatches(t.Context(), 5)
	must(t, err)
	if left := p.strings("SELECT batch_reference FROM batches"); n != 5 || len(left) > 0 {
		t.Errorf("dropped %d, left %v", n, left)
	}
	if rows := p.strings("SELECT 'row' FROM " + name); len(rows) != 3 {
		t.Errorf("%d rows left in the partition", len(rows))
	}
}

// A partition is dropped once retention keeps little of it. What it keeps moves: pending
// events, and those that were requested again, with their attempts.
func TestOldPartitionsAreDropped(t *testing.T) {
	t.Parallel()
	p := newPartitioned(t)
	const age = 500 * 24 * time.Hour
	old := []string{
		p.make("batch_rows", "week", age), p.make("webhook_attempts", "month", age),
		p.make("webhook_events", "month", age),
	}
	for _, name := range []string{"ended", "pending", "requested again"} {
		id := p.id(age)
		p.exec(`INSERT INTO webhook_events (organisation_id, id, site_id, type, payment_intent_id, transaction_status,
				status, created_at, requested_at, trace_id, body, next_attempt_at, task_id)
			VALUES (?0, ?1, ?2, 'transactionStatus', ?1, 'Expired',
				(CASE WHEN ?4 THEN 'pending' ELSE 'delivered' END)::webhook_event_status,
				1, CASE WHEN ?3 = 'requested again' THEN svc_now() ELSE 1 END, ?3, '', CASE WHEN ?4 THEN 1 END,
				CASE WHEN ?4 THEN ?1::uuid END)`,
			p.site.OrganisationID, id, p.site.ID, name, name == "pending")
		p.exec(`INSERT INTO webhook_attempts (organisation_id, event_id, number, endpoint_site_id, started_at,
				duration_ms, url)
			VALUES (?, ?, 1, ?, 1, 1, ?)`, p.site.OrganisationID, id, p.site.ID, name)
	}
	batch := p.id(age)
	p.row(batch)
	p.exec(`INSERT INTO batches (site_id, id, organisation_id, batch_reference, generation, epoch, row_count,
		total_amount,
			currency, submitted_at, settle_by, fingerprint)
		VALUES (?, ?, ?, 'batch', 1, 1, 1, 1, 'AUD', 1, svc_now(), '')`, p.site.ID, batch, p.site.OrganisationID)

	left := func() []string {
		return p.strings("SELECT name FROM partitions WHERE name IN (?, ?, ?) ORDER BY name", old[0], old[1], old[2])
	}
	p.sweep()
	if diff := cmp.Diff(old[:1], left()); diff != "" {
		t.Errorf("partitions while the batch is open (-want +got):\n%s", diff)
	}
	p.exec("UPDATE batches SET state = 'settled', settled_count = 1, settled_at = 1")
	p.sweep()
	if still := left(); len(still) > 0 {
		t.Errorf("partitions left: %v", still)
	}
	for query, want := range map[string][]string{
		"SELECT trace_id FROM webhook_events ORDER BY 1":               {"pending", "requested again"},
		"SELECT url FROM webhook_attempts ORDER BY 1":                  {"pending", "requested again"},
		"SELECT row_reference FROM batch_rows":                         nil,
		"SELECT DISTINCT tableoid::regclass::text FROM webhook_events": {"webhook_events_default"},
	} {
		if diff := cmp.Diff(want, p.strings(query)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	p.make("webhook_events", "month", age+100*24*time.Hour) // of which too much is kept
	must(t, p.MakePartitions(t.Context()))
	if open := p.openAlerts(); len(open) > 0 {
		t.Errorf("open alerts %v", open)
	}
}

// What has no partition is removed one by one: rows between two partitions, and events whose
// attempts have none.
func TestOldRowsWithoutAPartition(t *testing.T) {
	t.Parallel()
	p := newPartitioned(t)
	const week, age = 7 * 24 * time.Hour, 500 * 24 * time.Hour
	p.make("batch_rows", "week", age-week)
	p.make("batch_rows", "week", age+week)
	batch, event := p.id(age), p.id(age)
	p.row(batch)
	p.exec(`INSERT INTO batches (site_id, id, organisation_id, batch_reference, generation, epoch, row_count,
		total_amount,
			currency, submitted_at, settle_by, fingerprint, state, settled_count, settled_at)
		VALUES (?, ?, ?, 'batch', 1, 1, 1, 1, 'AUD', 1, 1, '', 'settled', 1, 1)`, p.site.ID, batch,
		p.site.OrganisationID)
	p.make("webhook_events", "month", age)
	p.exec(`INSERT INTO webhook_events (organisation_id, id, site_id, type, payment_intent_id, transaction_status,
			status, created_at, requested_at, trace_id, body)
		VALUES (?0, ?1, ?2, 'transactionStatus', ?1, 'Expired', 'delivered', 1, 1, '', '')`,
		p.site.OrganisationID, event, p.site.ID)
	p.exec(`INSERT INTO webhook_attempts (organisation_id, event_id, number, endpoint_site_id, started_at, duration_ms,
		url)
		VALUES (?, ?, 1, ?, 1, 1, '')`, p.site.OrganisationID, event, p.site.ID)
	p.sweep()
	if left := p.strings(`SELECT 'row' FROM batch_rows UNION ALL SELECT 'batch' FROM batches
		UNION ALL SELECT 'event' FROM webhook_events UNION ALL SELECT 'attempt' FROM webhook_attempts`); len(left) > 0 {
		t.Errorf("left after the sweep: %v", left)
	}
}

// Only partitions are dropped, and only those of their table.
func TestDropPartitionRefusesOtherTables(t *testing.T) {
	t.Parallel()
	p := newPartitioned(t)
	for _, table := range []string{"batch_rows_default", "webhook_events_default", "batches"} {
		if dropped := p.strings("SELECT drop_partition('batch_rows', ?, 0, 0)::text", table); dropped[0] != "false" {
			t.Errorf("%s: dropped %s", table, dropped[0])
		}
	}
}

// The rows of a batch never move: their partition stays as long as the batch, whatever may move.
func TestDropPartitionKeepsRowsOfBatches(t *testing.T) {
	t.Parallel()
	p := newPartitioned(t)
	const age = 500 * 24 * time.Hour
	name, batch := p.make("batch_rows", "week", age), p.id(age)
	p.row(batch)
	p.exec(`INSERT INTO batches (site_id, id, organisation_id, batch_reference, generation, epoch, row_count,
			total_amount, currency, submitted_at, settle_by, fingerprint)
		VALUES (?, ?, ?, 'batch', 1, 1, 1, 1, 'AUD', 1, svc_now(), '')`, p.site.ID, batch, p.site.OrganisationID)
	for _, most := range []int{0, 1, 1000} {
		dropped := p.strings("SELECT drop_partition('batch_rows', ?, 0, ?)::text", name, most)
		if dropped[0] != "false" {
			t.Errorf("dropped while %d rows may move: %s", most, dropped[0])
		}
	}
	if rows := p.strings("SELECT row_reference FROM batch_rows"); len(rows) != 1 {
		t.Errorf("%d rows are left", len(rows))
	}
}

// The events of payment intents are unique over all partitions.
func TestUniqueOverPartitions(t *testing.T) {
	t.Parallel()
	p := newPartitioned(t)
	intent := modelstest.Intent(t, p.Store, p.site.ID, 1)
	refused := func(code, constraint, query string, args ...any) {
		t.Helper()
		var pg *pgconn.PgError
		_, err := p.DB().ExecContext(t.Context(), query, args...)
		if !errors.As(err, &pg) || pg.Code != code || !strings.Contains(pg.ConstraintName, constraint) {
			t.Errorf("%v, want %s of %s", err, code, constraint)
		}
	}
	const event = `INSERT INTO webhook_events (organisation_id, id, site_id, type, payment_intent_id,
		transaction_status,
			status, created_at, requested_at, trace_id, body)
		VALUES (?, ?, ?, 'transactionStatus', ?, 'Settled', 'delivered', 1, 1, '', '')`
	first, again := uuid.UUID(intent.ID), uuid.UUID(intent.ID)
	again[15]++
	p.exec(event, p.site.OrganisationID, first, p.site.ID, intent.ID)
	refused("23505", "_intent", event, p.site.OrganisationID, again, p.site.ID, intent.ID)
	refused("23514", "webhook_events", event, p.site.OrganisationID, uuid.New(), p.site.ID, intent.ID)
}

// The tenant's key, site_id or organisation_id, leads the primary key and every unique key of the
// tables that grow with tenants, as a distributed engine needs it.
func TestTenantLeadsUniqueKeys(t *testing.T) {
	t.Parallel()
	// The keys that do not begin with a tenant. GROWTH.md says what becomes of each.
	others := []string{
		"customer_links (id)", "ledger_entries (rail_key)", "outbox (id)", "payment_intents (code)",
		"audit_log (id)", "alerts (kind, subject)", "idempotency_keys (client_id, path, key)",
		"reconciliation_differences (rail_key)",
	}
	grown := []string{
		"batches", "batch_rows", "batch_references", "customer_links", "ledger_entries", "link_totals", "outbox",
		"payment_intents", "webhook_attempts", "webhook_events", "webhook_slots", "audit_log", "alerts",
		"idempotency_keys", "reconciliation_differences",
	}
	var keys []struct{ Table, Columns string }
	must(t, modelstest.Open(t).DB().NewRaw(`
SELECT c.relname AS "table", string_agg(a.attname, ', ' ORDER BY k.n) AS columns
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (attnum, n)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
WHERE i.indisunique AND c.relnamespace = 'public'::regnamespace GROUP BY c.relname, i.indexrelid`).
		Scan(t.Context(), &keys))
	found := map[string]int{}
	for _, k := range keys {
		table := strings.TrimSuffix(k.Table, "_default")
		if table, _, _ = strings.Cut(table, "_p2"); !slices.Contains(grown, table) {
			continue
		}
		found[table]++
		if strings.HasPrefix(k.Columns, "site_id") || strings.HasPrefix(k.Columns, "organisation_id") {
			continue
		}
		if !slices.Contains(others, table+" ("+k.Columns+")") {
			t.Errorf("a unique key of %s: (%s)", k.Table, k.Columns)
		}
	}
	for _, table := range grown {
		if found[table] == 0 {
			t.Errorf("%s has no unique key", table)
		}
	}
}
