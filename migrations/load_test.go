package migrations_test

import (
	"context"
	"database/sql"
	"flag"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

var loadRows = flag.Int("load-rows", 100_000, "rows of the table that TestMigratesUnderLoad changes")

// baseline is how long requests are measured without migrations.
const baseline = time.Second

// later are migrations as a later release may have them.
var later = fstest.MapFS{
	"9001_column.tx.up.sql": {Data: []byte(`ALTER TABLE alerts ADD COLUMN seen_at bigint;
ALTER TABLE alerts ADD CONSTRAINT alerts_seen CHECK (seen_at >= raised_at) NOT VALID;
`)},
	"9002_index.up.sql": {Data: []byte(`DROP INDEX CONCURRENTLY IF EXISTS alerts_seen_at;
CREATE INDEX CONCURRENTLY alerts_seen_at ON alerts (seen_at, kind, subject);
ANALYZE alerts;
`)},
	"9003_validate.up.sql": {Data: []byte(`ALTER TABLE alerts VALIDATE CONSTRAINT alerts_seen;
`)},
}

// withLater returns this binary's migrations and the later ones.
func withLater(t *testing.T) fs.FS {
	t.Helper()
	all := allFiles(t)
	for name, file := range later {
		all[name] = file
	}
	return all
}

// allFiles returns this binary's migrations.
func allFiles(t *testing.T) fstest.MapFS {
	t.Helper()
	all := fstest.MapFS{}
	names, err := fs.Glob(os.DirFS("."), "*.up.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = &fstest.MapFile{Data: content}
	}
	return all
}

// Short requests and long readers use a large table while it is migrated. No request takes a second
// longer than before: a statement that does not get its lock gives up and tries again later.
// `-load-rows 5000000` is the full size.
func TestMigratesUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("a drill with whole servers")
	}
	t.Parallel()
	dsn := modelstest.DSN(t)
	store, err := models.Open(postgres.Config{DSN: dsn, StatementTimeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := store.DB().ExecContext(t.Context(), `INSERT INTO alerts (kind, subject, raised_at)
		SELECT 'load', i::text, i FROM generate_series(1, ?) AS i`, *loadRows); err != nil {
		t.Fatal(err)
	}
	load, end := context.WithCancel(t.Context())
	defer end()
	var running sync.WaitGroup
	var slowest, requests atomic.Int64
	for range 4 {
		running.Go(func() {
			for load.Err() == nil {
				began := time.Now()
				_, err := store.DB().ExecContext(t.Context(), "SELECT raise_alert('new', ?::text, NULL, NULL, '', '')",
					requests.Add(1))
				if err != nil {
					t.Error(err)
					return
				}
				for took := int64(time.Since(began)); ; {
					if s := slowest.Load(); took <= s || slowest.CompareAndSwap(s, took) {
						break
					}
				}
			}
		})
	}
	reading := make(chan struct{})
	running.Go(func() { readLong(t, load, store, reading) })
	<-reading
	select { // measures requests without migrations
	case <-time.After(baseline):
	case <-t.Context().Done():
	}
	usual, before, began := time.Duration(slowest.Swap(0)), requests.Load(), time.Now()
	n, err := migrations.UpFrom(t.Context(), store.DB(), withLater(t))
	took := time.Since(began)
	end()
	running.Wait()
	if n != len(later) || err != nil {
		t.Fatalf("%d migrations applied: %v", n, err)
	}
	longest := time.Duration(slowest.Load())
	t.Logf("%d rows, %d requests beside the migrations, which took %s; the slowest request took %s, before %s",
		*loadRows,
		requests.Load()-before, took.Round(time.Millisecond), longest.Round(time.Millisecond),
		usual.Round(time.Millisecond))
	if longest > time.Second+usual {
		t.Errorf("a request waited for %s, before the migrations for at most %s", longest, usual)
	}
	requireValid(t, store)
}

// readLong reads the table in one transaction after another, each open for three seconds: the first
// holds its lock when the migrations begin.
func readLong(t *testing.T, ctx context.Context, store *models.Store, reading chan<- struct{}) {
	for first := true; ctx.Err() == nil; first = false {
		tx, err := store.DB().BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{ReadOnly: true})
		if err == nil {
			_, err = tx.ExecContext(context.WithoutCancel(ctx), "SELECT FROM alerts LIMIT 1")
		}
		if err != nil {
			t.Error(err)
			return
		}
		if first {
			close(reading)
		}
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Second):
		}
		_ = tx.Rollback()
		select { // a moment without a reader, as between two reports
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// requireValid checks that the index and the constraint of the later migrations are valid.
func requireValid(t *testing.T, store *models.Store) {
	t.Helper()
	var valid bool
	err := store.DB().QueryRowContext(t.Context(), `SELECT
		(SELECT indisvalid FROM pg_index WHERE indexrelid = 'alerts_seen_at'::regclass)
		AND (SELECT convalidated FROM pg_constraint WHERE conname = 'alerts_seen')`).Scan(&valid)
	if err != nil || !valid {
		t.Errorf("index and constraint are valid: %t, %v", valid, err)
	}
}
