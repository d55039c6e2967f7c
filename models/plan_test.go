package models_test

import (
	"context"
	_ "embed" // the statement that fills tables
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// wholeTables are the calls that scan whole tables by design, and the calls covered by other plan
// tests.
var wholeTables = map[string]string{
	"Audit":                "compares all rows with the ledger",
	"CheckSettings":        "reads catalogs alone",
	"ReadsReplica":         "reads nothing",
	"ReplicaState":         "reads two tables of one row, if there is a replica",
	"CancelRestored":       "once after a restore",
	"ResumeRestored":       "once after a restore",
	"BeginEpoch":           "once after a restore",
	"Epoch":                "counts what is in doubt, for an operator",
	"FoldLinkChanges":      "reads what is left to fold",
	"LinkedSites":          "lists every Site",
	"Organisations":        "lists every organisation",
	"CompareTotals":        "counts a Site's links",
	"RecountLinks":         "counts a Site's links",
	"ReclaimQueue":         "runs after a loss of Redis: all tasks in flight go out again",
	"ReplaceRail":          "looks for any work in doubt",
	"EraseCustomer":        "reads a Site's payments",
	"ExportCustomer":       "reads a Site's batches and payments",
	"ResealParties":        "reads every customer link and payment",
	"ResealKeys":           "reads every key",
	"ResealWebhookSecrets": "reads every secret",
}

// fillTables fills the tables that grow large. OWN stands for the test's own Site.
//
//go:embed testdata/large_tables.sql
var fillTables string

// manyPartitions makes as many partitions as the default retention needs.
const manyPartitions = `
SELECT make_partition(t.name, t.period, (date_trunc(t.period, now(), 'UTC') AT TIME ZONE 'UTC'
    - n * ('1 ' || t.period)::interval) AT TIME ZONE 'UTC', 0)
FROM (VALUES ('batch_rows', 'week'), ('webhook_events', 'month'), ('webhook_attempts', 'month')) AS t (name, period),
    generate_series(2, 13) AS n`

// grown are the tables that fillTables fills.
var grown = []string{
	"idempotency_keys", "client_assertions", "customer_links", "batches", "batch_references", "batch_rows",
	"ledger_entries", "outbox",
	"payment_intents", "webhook_endpoints", "webhook_events", "webhook_attempts", "webhook_slots", "alerts",
	"sandbox_accounts", "sandbox_debits",
}

// transient are the tables of unfinished work, which are empty again and again.
var transient = []string{"outbox", "webhook_slots", "idempotency_keys", "client_assertions", "alerts"}

// planned is a database with one connection, so that each statement keeps its plan.
type planned struct {
	t     *testing.T
	dsn   string
	admin *models.Store // another connection
	store *models.Store
	ring  *seal.Keyring
	keys  *models.Keys
	site  models.Site
	round int
	reads map[string]int64 // blocks by method, of the last round
}

func newPlanned(t *testing.T) *planned {
	dsn := modelstest.DSN(t)
	p := &planned{t: t, dsn: dsn, admin: openConfig(t, postgres.Config{DSN: dsn, StatementTimeout: 5 * time.Minute})}
	p.exec(manyPartitions)
	p.exec(`DO $$ DECLARE name regclass; BEGIN
		FOR name IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' LOOP
			EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', name);
		END LOOP;
	END $$`)
	var err error
	p.ring, err = seal.ParseKeyring(seal.GenerateMasterKey())
	must(t, err)
	p.connect()
	must(t, p.store.EnsureKeys(t.Context(), p.ring))
	p.site = modelstest.Site(t, p.store)
	p.keys = models.NewKeys(p.store, p.ring)
	return p
}

// exec executes statements on one connection, each in a transaction of its own: a long transaction
// would hold back the streams of webhooks that other tests read on the same server. It reports
// their statistics at once. An idle backend would report them up to ten seconds later, as if a call
// had read the blocks.
func (p *planned) exec(statements ...string) {
	p.t.Helper()
	conn, err := p.admin.DB().Conn(p.t.Context())
	must(p.t, err)
	defer conn.Close()
	for _, statement := range append(statements, "SELECT pg_stat_force_next_flush()") {
		if _, err := conn.ExecContext(p.t.Context(), statement); err != nil {
			p.t.Fatalf("%v\n%s", err, statement)
		}
	}
}

// fill runs the statements of fillTables.
func (p *planned) fill() {
	p.t.Helper()
	fill := strings.ReplaceAll(fillTables, "OWN", uuid.UUID(p.site.ID).String())
	p.exec(strings.SplitAfter(fill, ";\n")...)
}

// connect opens a connection without plans.
func (p *planned) connect() {
	if p.store != nil {
		must(p.t, p.store.Close())
	}
	p.store = openConfig(p.t, postgres.Config{DSN: p.dsn, MaxConns: 1, StatementTimeout: time.Minute})
	p.keys = models.NewKeys(p.store, p.ring)
}

// blocks returns the number of blocks of our tables that were read, from the cache or from disk. An
// autovacuum worker in the catalog does not count.
func (p *planned) blocks() (n int64) {
	p.t.Helper()
	db := p.store.DB().DB
	_, err := db.ExecContext(p.t.Context(), "SELECT pg_stat_force_next_flush()")
	must(p.t, err)
	must(p.t, db.QueryRowContext(p.t.Context(),
		`SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0)
		    + coalesce(toast_blks_hit + toast_blks_read + tidx_blks_hit + tidx_blks_read, 0))
		FROM pg_statio_user_tables`).Scan(&n))
	return n
}

// call counts the blocks that a call of the method reads, or the maximum of several calls.
func (p *planned) call(method string, do func(ctx context.Context) error) {
	p.t.Helper()
	before := p.blocks()
	if err := do(p.t.Context()); err != nil {
		p.t.Errorf("%s: %v", method, err)
	}
	p.reads[method] = max(p.reads[method], p.blocks()-before)
}

func expect(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("%w, want %w", err, want)
}

// run calls every method at least once, on objects of its own, with little work in each.
func (p *planned) run() {
	p.round++
	p.reads = map[string]int64{}
	p.runPlatform()
	p.runCustomers()
	p.runBatches()
	p.runPayments()
	p.runWebhooks()
	p.runSweeps()
	p.runReconciliation()
	p.runOperations()
}

func (p *planned) name(s string) string { return fmt.Sprintf("%s of round %d", s, p.round) }

// only drops the value of a call.
func only[T any](_ T, err error) error { return err }

// allowedReads is the maximum number of blocks that a call may read beyond those of small tables. A
// sequential scan of the smallest filled table exceeds the default.
func allowedReads(method string) int64 {
	if reads, ok := map[string]int64{
		"ClaimDue":          4000,   // a look-up for each of 200 Sites with waiting tasks, and dead index entries
		"AuditWindow":       3500,   // look-ups for each Site, and the rows of a batch
		"DeadLetters":       8000,   // a look-up for each of 50 organisations in each of 28 partitions
		"Figures":           2000,   // counts up to MostCounted of each thing
		"Lanes":             26_000, // looks up as PartnerBacklogs does, and counts up to MostCounted tasks of 50 Sites
		"LedgerBetween":     2000,   // a look-up for each Site
		"ListBatches":       8000,   // the rows of 50 open batches, and an exact total
		"ListLinks":         1000,   // an exact total
		"ListMovements":     6000,   // an exact total, ahead of any vacuum
		"ListWebhookEvents": 2000,   // an exact total
		"MovementsAfter":    1500,   // a thousand movements
		"PartnerBacklogs":   6000,   // a look-up for each of 200 Sites in each of three queues, ahead of any vacuum
		"ReleaseWebhooks":   3000,   // three look-ups for each of 200 endpoints with parked events
		"Search":            4000,   // a look-up for each of 200 Sites in each of three tables
		"TroubledEndpoints": 1500,   // look-ups for each of 200 endpoints
	}[method]; ok {
		return reads
	}
	return 500
}

// Every call of the store reads a bounded part of large tables, whether its statements were planned
// on empty, unanalysed, analysed or emptied tables. A connection keeps its plans.
func TestEveryCallReadsABoundedPart(t *testing.T) {
	t.Parallel()
	p := newPlanned(t)
	p.run() // plans every statement on empty tables, and reads the catalog
	p.run()
	small := p.reads
	check := func(when string) {
		t.Helper()
		for method, reads := range p.reads {
			if reads > 4*small[method]+allowedReads(method) {
				t.Errorf("%s: %s reads %d blocks, of small tables %d", when, method, reads, small[method])
			}
		}
	}
	p.fill()
	p.run()
	check("planned on empty tables")

	p.connect()
	p.run()
	p.run()
	check("planned without statistics")

	for _, table := range grown {
		p.exec("VACUUM ANALYZE " + table)
	}
	p.connect()
	p.run()
	p.run()
	check("planned on large tables")

	emptied := transient
	if testing.Short() {
		emptied = emptied[:1]
	}
	for _, table := range emptied {
		p.exec("CREATE TABLE kept AS SELECT * FROM " + table)
		p.exec("TRUNCATE " + table)
		p.exec("VACUUM ANALYZE " + table)
		p.connect()
		p.run()
		p.run()
		p.exec("INSERT INTO " + table + " SELECT * FROM kept ON CONFLICT DO NOTHING; DROP TABLE kept")
		p.run()
		check("planned when " + table + " was empty")
	}

	p.every(small)
}

// every checks that the test calls every method of the store with a context.
func (p *planned) every(called map[string]int64) {
	typ := reflect.TypeFor[*models.Store]()
	for i := range typ.NumMethod() {
		m := typ.Method(i)
		if m.Type.NumIn() < 2 || m.Type.In(1) != reflect.TypeFor[context.Context]() {
			continue
		}
		_, whole := wholeTables[m.Name]
		if _, ok := called[m.Name]; ok == whole {
			p.t.Errorf("%s is called: %v, reads whole tables: %v", m.Name, ok, whole)
		}
	}
}
