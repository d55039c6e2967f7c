package migrations_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

func TestMain(m *testing.M) { modelstest.Main(m) }

func open(t *testing.T, dsn string) *models.Store {
	t.Helper()
	store, err := models.Open(postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// migrationCount returns the number of migration files.
func migrationCount(t *testing.T) int {
	t.Helper()
	return len(allFiles(t))
}

func requirePending(t *testing.T, store *models.Store, want int) {
	t.Helper()
	if n, err := migrations.Pending(t.Context(), store.DB()); n != want || err != nil {
		t.Errorf("%d of %d pending, %v", n, want, err)
	}
}

const changeLastChecksum = `UPDATE schema_migrations SET checksum = 'x'
	WHERE name = (SELECT max(name) FROM schema_migrations)`

func exec(t *testing.T, store *models.Store, query string) {
	t.Helper()
	if _, err := store.DB().ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

// Up applies every migration to an empty database, and nothing on the next run. The schema equals
// the template's.
func TestUp(t *testing.T) {
	t.Parallel()
	store := open(t, modelstest.EmptyDSN(t))
	all := migrationCount(t)
	requirePending(t, store, all)
	if n, err := migrations.Up(t.Context(), store.DB()); n != all || err != nil {
		t.Fatalf("applied %d of %d, %v", n, all, err)
	}
	requirePending(t, store, 0)
	if n, err := migrations.Up(t.Context(), store.DB()); n != 0 || err != nil {
		t.Errorf("applied %d again, %v", n, err)
	}
	if diff := cmp.Diff(modelstest.Schema(t, modelstest.Open(t)), modelstest.Schema(t, store)); diff != "" {
		t.Errorf("the schema differs from the template's (-template +migrated):\n%s", diff)
	}
}

// Concurrent runs apply each migration once.
func TestConcurrentUp(t *testing.T) {
	t.Parallel()
	dsn := modelstest.EmptyDSN(t)
	type result struct {
		n   int
		err error
	}
	results := make(chan result, 4)
	for range cap(results) {
		store := open(t, dsn)
		go func() {
			n, err := migrations.Up(context.Background(), store.DB())
			results <- result{n, err}
		}()
	}
	total := 0
	for range cap(results) {
		r := <-results
		total += r.n
		if r.err != nil {
			t.Error(r.err)
		}
	}
	if want := migrationCount(t); total != want {
		t.Errorf("applied %d, there are %d", total, want)
	}
}

// The time-out applies to each statement outside of a transaction, not to their sum.
func TestUpLimitsEachStatement(t *testing.T) {
	t.Parallel()
	store, files := modelstest.Open(t), allFiles(t)
	files["9001_slow.up.sql"] = &fstest.MapFile{Data: []byte(strings.Repeat("SELECT pg_sleep(1);\n", 4))}
	if n, err := migrations.UpWithin(t.Context(), store.DB(), files, 3*time.Second); n != 1 || err != nil {
		t.Errorf("applied %d, %v", n, err)
	}
	files["9002_too_slow.up.sql"] = &fstest.MapFile{Data: []byte("SELECT pg_sleep(60);\n")}
	_, err := migrations.UpWithin(t.Context(), store.DB(), files, 3*time.Second)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a statement beyond the time-out: %v", err)
	}
}

// Up waits for the transaction of another run, and continues if that run rolls back.
func TestUpWaits(t *testing.T) {
	t.Parallel()
	store := open(t, modelstest.EmptyDSN(t))
	exec(t, store, `CREATE TABLE schema_migrations
		(name text PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())`)
	tx, err := store.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "LOCK TABLE schema_migrations"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := migrations.Up(context.Background(), store.DB())
		done <- err
	}()
	modelstest.AwaitLockWait(t, store)
	select {
	case err := <-done:
		t.Fatalf("Up did not wait: %v", err)
	default:
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	requirePending(t, store, 0)
}

// Up and Pending refuse a database with other migrations and leave it unchanged. They accept a
// later release's schema.
func TestOtherSchema(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"other content": changeLastChecksum,
		"other name": `UPDATE schema_migrations SET name = '0001_ground'
			WHERE name = (SELECT min(name) FROM schema_migrations)`,
		"other runner": "CREATE TABLE bun_migrations (name text)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := modelstest.Open(t)
			exec(t, store, change)
			before := modelstest.Schema(t, store)
			if _, err := migrations.Up(t.Context(), store.DB()); !errors.Is(err, migrations.ErrOtherSchema) {
				t.Errorf("up: %v", err)
			}
			if diff := cmp.Diff(before, modelstest.Schema(t, store)); diff != "" {
				t.Errorf("changed:\n%s", diff)
			}
		})
	}
	store := modelstest.Open(t)
	exec(t, store, changeLastChecksum)
	if _, err := migrations.Pending(t.Context(), store.DB()); !errors.Is(err, migrations.ErrOtherSchema) {
		t.Errorf("pending: %v", err)
	}
	later := modelstest.Open(t)
	exec(t, later, "INSERT INTO schema_migrations (name, checksum) VALUES ('9999_later', 'x')")
	requirePending(t, later, 0)
	if n, err := migrations.Up(t.Context(), later.DB()); n != 0 || err != nil {
		t.Errorf("up on a later release's schema: %d, %v", n, err)
	}
}
