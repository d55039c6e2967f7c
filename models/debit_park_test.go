package models_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

var parks = flag.Int("parks", 300, "how many tasks TestParkAsALeaseEnds parks at the moment at which a lease ends")

// movingClock makes each reading of the server's clock by the returned Store's statements 1 ms
// later than the one before. The first reading of the next statement is base + 1 ms.
func movingClock(t *testing.T, dsn string, store *models.Store, base time.Time) *models.Store {
	t.Helper()
	for _, query := range []string{
		"CREATE SCHEMA moving",
		"CREATE SEQUENCE moving.readings",
		"CREATE TABLE moving.base AS SELECT ?::timestamptz AS at",
		`CREATE FUNCTION moving.statement_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
		 $$ SELECT at + nextval('moving.readings') * interval '1 ms' FROM moving.base $$`,
		`CREATE FUNCTION moving.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
		 $$ SELECT at + nextval('moving.readings') * interval '1 ms' FROM moving.base $$`,
	} {
		args := []any{base}
		if query != "CREATE TABLE moving.base AS SELECT ?::timestamptz AS at" {
			args = nil
		}
		_, err := store.DB().ExecContext(t.Context(), query, args...)
		must(t, err)
	}
	moving, err := models.Open(postgres.Config{DSN: dsn + "&search_path=moving,public,pg_catalog"})
	must(t, err)
	moving.SetKeyring(modelstest.Keyring(t, modelstest.MasterKey))
	t.Cleanup(func() { must(t, moving.Close()) })
	return moving
}

// A lease ends while a statement parks its task. Afterwards the task must have a due time or a
// lease, or it would never go out again.
func TestParkWhileALeaseEnds(t *testing.T) {
	t.Parallel()
	dsn := modelstest.DSN(t)
	store, err := models.Open(postgres.Config{DSN: dsn})
	must(t, err)
	store.SetKeyring(modelstest.Keyring(t, modelstest.MasterKey))
	t.Cleanup(func() { must(t, store.Close()) })
	site := modelstest.Site(t, store)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada"))
	base := time.Now()
	moving := movingClock(t, dsn, store, base)
	for reading := range 4 {
		claimTask(t, store, done.Tasks[0])
		_, err := store.DB().ExecContext(t.Context(), `
UPDATE batch_rows SET state = 'inProgress', lease_token = ?, lease_until = ?`,
			models.NewLeaseToken(), base.Add(time.Duration(reading)*time.Millisecond+500*time.Microsecond))
		must(t, err)
		_, err = store.DB().ExecContext(t.Context(), "ALTER SEQUENCE moving.readings RESTART")
		must(t, err)
		must(t, moving.ParkChunk(t.Context(), done.Tasks[0]))
		wantReachable(t, store)
	}
}

// claimTask simulates the dispatch of the task.
func claimTask(t *testing.T, store *models.Store, task models.TaskID) {
	t.Helper()
	_, err := store.DB().ExecContext(t.Context(), `
UPDATE outbox SET dispatched_at = statement_timestamp(),
	redispatch_after = statement_timestamp() + interval '20 s' WHERE id = ?`, task)
	must(t, err)
}

// wantReachable checks that every task will become due again.
func wantReachable(t *testing.T, store *models.Store) {
	t.Helper()
	var lost int
	must(t, store.DB().
		NewRaw("SELECT count(*) FROM outbox WHERE dispatched_at IS NOT NULL AND redispatch_after IS NULL").
		Scan(t.Context(), &lost))
	if lost > 0 {
		t.Fatalf("%d tasks never go out again", lost)
	}
}

// A worker that is asked to stop hands back tasks whose rows it has not begun. They are as late as
// before: workers are scaled on that age.
func TestParkKeepsTheAgeOfUntouchedRows(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, 1_800_000_000_000)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada"))
	modelstest.AdvanceClock(t, store, 7*time.Second)
	for range 2 { // a second park changes nothing
		claimTask(t, store, done.Tasks[0])
		must(t, store.ParkChunk(t.Context(), done.Tasks[0]))
		all, err := store.Backlogs(t.Context())
		must(t, err)
		for _, b := range all {
			want := models.Backlog{Queue: b.Queue}
			if b.Queue == models.QueueDebits {
				want.Due, want.OldestDue = 1, 7000
			}
			if b != want {
				t.Errorf("backlog %+v, want %+v", b, want)
			}
		}
	}
}

func TestParkAsALeaseEnds(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada"))
	for range *parks {
		claimTask(t, store, done.Tasks[0])
		_, err := store.DB().ExecContext(t.Context(), `
UPDATE batch_rows SET state = 'inProgress', lease_token = ?,
	lease_until = clock_timestamp() + ? * interval '1 microsecond'`,
			models.NewLeaseToken(), rand.N(2000)) // a moment, not a secret
		must(t, err)
		must(t, store.ParkChunk(t.Context(), done.Tasks[0]))
		wantReachable(t, store)
	}
}
