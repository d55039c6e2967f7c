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
	"partnerbilling/models/postgres"
)

var kills = flag.Int("kills", 10, "how often TestKilledMigrations kills svc migrate up")

// requireMigration runs svc migrate up, which must succeed and complete the schema.
func requireMigration(t *testing.T, dsn string, whole []string) {
	t.Helper()
	if code, _, stderr := svc(t, map[string]string{"SVC_DATABASE_URL": dsn}, "migrate", "up"); code != 0 {
		t.Fatalf("the next run fails: %s", stderr)
	}
	store, err := models.Open(postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if diff := cmp.Diff(whole, modelstest.Schema(t, store)); diff != "" {
		t.Fatalf("the schema after the next run differs (-want +got):\n%s", diff)
	}
}

// The next run of svc migrate up completes the schema after a kill at a random time. Every second
// kill comes after the run has connected. `-kills 200` kills more often.
func TestKilledMigrations(t *testing.T) {
	t.Parallel()
	whole := modelstest.Schema(t, modelstest.Open(t))
	fromStart := startMigrating(t, modelstest.EmptyDSN(t), false).duration(t)
	connected := startMigrating(t, modelstest.EmptyDSN(t), true).duration(t)
	left := map[int]int{} // number of kills by pending migrations
	for i := range *kills {
		dsn := modelstest.EmptyDSN(t)
		m, within := startMigrating(t, dsn, i%2 == 1), fromStart
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
		requireMigration(t, dsn, whole)
	}
	t.Logf("a run takes %s, %s after its connection; kills by pending migrations: %v", fromStart, connected, left)
}

// migrating is a run of svc migrate up, with a store on its database.
type migrating struct {
	*process
	store *models.Store
	since time.Time
}

// startMigrating starts a run. If connected is set, it waits until the run has connected to the
// database.
func startMigrating(t *testing.T, dsn string, connected bool) *migrating {
	t.Helper()
	m := &migrating{store: modelstest.Connect(t, dsn)}
	if err := m.store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.process = startSvc(t, map[string]string{"SVC_DATABASE_URL": dsn}, "migrate", "up")
	deadline := time.After(awaitTimeout)
	for ready := !connected; !ready; {
		if err := m.store.DB().NewRaw(`
SELECT EXISTS (SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'svc admin')`).Scan(t.Context(), &ready); err != nil {
			t.Fatal(err)
		}
		select {
		case <-m.done:
			ready = true
		case <-deadline:
			t.Fatal("svc migrate up does not connect")
		default:
		}
	}
	m.since = time.Now()
	return m
}

// duration waits until the run has ended, and returns the time since startMigrating.
func (m *migrating) duration(t *testing.T) time.Duration {
	t.Helper()
	if code := m.wait(awaitTimeout); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	_ = m.store.Close()
	return time.Since(m.since)
}

// The next run of svc migrate up completes the schema after a kill while the run waited for a lock.
func TestMigrationsKilledWhileWaiting(t *testing.T) {
	t.Parallel()
	whole := modelstest.Schema(t, modelstest.Open(t))
	for name, lock := range map[string]string{
		"record":    "LOCK TABLE schema_migrations",
		"other run": "SELECT pg_advisory_xact_lock(x'5376634d696772'::bigint)",
	} {
		t.Run(name, func(t *testing.T) {
			dsn := modelstest.EmptyDSN(t)
			store := modelstest.Connect(t, dsn)
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
			requireMigration(t, dsn, whole)
		})
	}
}

// svc migrate up refuses the database of an unreleased version with instructions.
func TestDatabaseOfUnreleasedVersion(t *testing.T) {
	t.Parallel()
	dsn := modelstest.EmptyDSN(t)
	store := modelstest.Connect(t, dsn)
	if _, err := store.DB().ExecContext(t.Context(), "CREATE TABLE bun_migrations (name text)"); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := svc(t, map[string]string{"SVC_DATABASE_URL": dsn}, "migrate", "up")
	if code == 0 || !strings.Contains(stderr, "delete the data folder") ||
		!strings.Contains(stderr, "new, empty database") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// Migrations need a session of their own.
func TestMigrationsRefuseAPooler(t *testing.T) {
	t.Parallel()
	env := map[string]string{"SVC_DATABASE_URL": modelstest.EmptyDSN(t), "SVC_DATABASE_POOLER": "transaction"}
	code, _, stderr := svc(t, env, "migrate", "up")
	if code == 0 || !strings.Contains(stderr, "past the pooler") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
