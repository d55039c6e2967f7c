package main

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

var kills = flag.Int("kills", 10, "how often TestKilledMigrations kills svc migrate up")

// openStore opens a store on a database.
func openStore(t *testing.T, dsn string) *models.Store {
	t.Helper()
	store, err := models.Open(t.Context(), models.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// proveMigrates runs svc migrate up to its end, and holds the schema against a whole one.
func proveMigrates(t *testing.T, dsn string, whole []string) {
	t.Helper()
	if code, _, stderr := svc(t, map[string]string{"SVC_DATABASE_URL": dsn}, "migrate", "up"); code != 0 {
		t.Fatalf("the next run fails: %s", stderr)
	}
	store, err := models.Open(t.Context(), models.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if diff := cmp.Diff(whole, modelstest.Schema(t, store)); diff != "" {
		t.Fatalf("the next run left another schema (-whole +this):\n%s", diff)
	}
}

// svc migrate up is killed at random moments on empty databases, every other time after it has connected; the next run
// completes. `-kills 200` kills more often.
func TestKilledMigrations(t *testing.T) {
	t.Parallel()
	whole := modelstest.Schema(t, modelstest.Open(t))
	usual := startMigrating(t, modelstest.EmptyDSN(t), false).lasts(t)
	connected := startMigrating(t, modelstest.EmptyDSN(t), true).lasts(t)
	left := map[int]int{} // kills by how many migrations were missing after them
	for i := range *kills {
		dsn := modelstest.EmptyDSN(t)
		m, within := startMigrating(t, dsn, i%2 == 1), usual
		if i%2 == 1 {
			within = connected
		}
		select {
		case <-time.After(rand.N(within)):
		case <-m.done:
		}
		m.kill()
		n, err := migrations.Pending(t.Context(), m.store.DB())
		if err != nil {
			t.Fatal(err)
		}
		_ = m.store.Close()
		left[n]++
		proveMigrates(t, dsn, whole)
	}
	t.Logf("a run takes %s, %s of them connected; kills by how many migrations they left: %v", usual, connected, left)
}

// migrating is a run of svc migrate up, and a store on its database.
type migrating struct {
	*process
	store *models.Store
	since time.Time
}

// startMigrating starts a run, and waits until it has connected if told so.
func startMigrating(t *testing.T, dsn string, connected bool) *migrating {
	t.Helper()
	m := &migrating{store: openStore(t, dsn)}
	if err := m.store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.process = startSvc(t, map[string]string{"SVC_DATABASE_URL": dsn}, "migrate", "up")
	for there := !connected; !there; {
		if err := m.store.DB().NewRaw(`
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'svc admin')`).Scan(t.Context(), &there); err != nil {
			t.Fatal(err)
		}
		select {
		case <-m.done:
			there = true
		default:
		}
	}
	m.since = time.Now()
	return m
}

// lasts waits until the run has ended, and returns how long that took.
func (m *migrating) lasts(t *testing.T) time.Duration {
	t.Helper()
	if code := m.wait(patience); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	_ = m.store.Close()
	return time.Since(m.since)
}

// svc migrate up is killed while its record is locked, and while it waits for another run; the next run completes once the
// lock is gone.
func TestMigrationsKilledWhileTheyWait(t *testing.T) {
	t.Parallel()
	whole := modelstest.Schema(t, modelstest.Open(t))
	for name, lock := range map[string]string{
		"record":      "LOCK TABLE schema_migrations",
		"another run": "SELECT pg_advisory_xact_lock(x'5376634d696772'::bigint)",
	} {
		t.Run(name, func(t *testing.T) {
			dsn := modelstest.EmptyDSN(t)
			store := openStore(t, dsn)
			if _, err := store.DB().ExecContext(t.Context(), "CREATE TABLE schema_migrations (name text PRIMARY KEY, "+
				"checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT statement_timestamp())"); err != nil {
				t.Fatal(err)
			}
			tx, err := store.DB().BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), lock); err != nil {
				t.Fatal(err)
			}
			p := startSvc(t, map[string]string{"SVC_DATABASE_URL": dsn}, "migrate", "up")
			modelstest.AwaitLockWait(t, store)
			p.kill()
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			proveMigrates(t, dsn, whole)
		})
	}
}

// A database that an earlier, unreleased version has migrated is refused with a message that says what to do.
func TestDatabaseOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	dsn := modelstest.EmptyDSN(t)
	store := openStore(t, dsn)
	if _, err := store.DB().ExecContext(t.Context(), "CREATE TABLE bun_migrations (name text)"); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := svc(t, map[string]string{"SVC_DATABASE_URL": dsn}, "migrate", "up")
	if code == 0 || !strings.Contains(stderr, "delete the data folder") || !strings.Contains(stderr, "new, empty database") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
