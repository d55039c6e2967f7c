package migrations_test

import (
	"context"
	"testing"
	"testing/fstest"
	"time"

	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// A concurrent index build waits for the transactions of other runs, which wait for its advisory
// lock. They give up before Postgres detects a deadlock.
func TestConcurrentUpBuildsAnIndex(t *testing.T) {
	t.Parallel()
	dsn := modelstest.DSN(t)
	store, files := open(t, dsn), allFiles(t)
	files["9001_index.up.sql"] = &fstest.MapFile{Data: []byte(`DROP INDEX CONCURRENTLY IF EXISTS alerts_raised_at;
CREATE INDEX CONCURRENTLY alerts_raised_at ON alerts (raised_at);
`)}
	writer, err := store.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Rollback() }()
	if _, err := writer.ExecContext(t.Context(), "UPDATE alerts SET raised_at = 0 WHERE false"); err != nil {
		t.Fatal(err)
	}
	type result struct {
		n   int
		err error
	}
	results := make(chan result, 2)
	start := func(s *models.Store) {
		go func() {
			n, err := migrations.UpFrom(context.Background(), s.DB(), files)
			results <- result{n, err}
		}()
	}
	start(open(t, dsn))
	awaitTrue(t, store, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'virtualxid' AND NOT granted)")
	start(open(t, dsn))
	awaitTrue(t, store, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "+
		"AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))")
	if err := writer.Rollback(); err != nil {
		t.Fatal(err)
	}
	first, second := <-results, <-results
	if first.n+second.n != 1 || first.err != nil || second.err != nil {
		t.Errorf("applied %d and %d, %v, %v", first.n, second.n, first.err, second.err)
	}
	var deadlocks int
	err = store.DB().NewRaw("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").
		Scan(t.Context(), &deadlocks)
	if deadlocks != 0 || err != nil {
		t.Errorf("%d deadlocks, %v", deadlocks, err)
	}
}

// awaitTrue repeats a query until it returns true.
func awaitTrue(t *testing.T, store *models.Store, query string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		var is bool
		if err := store.DB().NewRaw(query).Scan(t.Context(), &is); err != nil {
			t.Fatal(err)
		}
		if is {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", query)
		}
	}
}
