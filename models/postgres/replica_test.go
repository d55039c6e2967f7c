package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"partnerbilling/deploy/local"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

var replicaStatements = postgres.ReplicaStatements{
	Position: postgres.SQL(`
SELECT '' AS history, pg_current_wal_flush_lsn()::text AS lsn,
       extract(epoch FROM clock_timestamp())::float8 * 1000 AS at`),
	Status: postgres.SQL(`
SELECT pg_is_in_recovery() AND :history::text = '' AS follows, 0::float8 AS lag_seconds,
       greatest(0, pg_wal_lsn_diff(:lsn::text::pg_lsn, pg_last_wal_replay_lsn()))::bigint AS behind,
       extract(epoch FROM clock_timestamp())::float8 * 1000 - :at::float8 AS clock_lead`),
}

func openPair(t *testing.T, conns int) (*postgres.DB, *postgres.Replica, *local.Pair) {
	t.Helper()
	pair, err := local.TempPair(t.Context(), local.Options{Ephemeral: true})
	must(t, err)
	db, err := postgres.Open(postgres.Config{DSN: pair.DatabaseURL()})
	must(t, err)
	replica, err := postgres.OpenReplica(postgres.Config{DSN: pair.Standby().DatabaseURL, MaxConns: conns,
		ReplicaWait: modelstest.ReplicaWait}, replicaStatements)
	must(t, err)
	db.UseReplica(replica)
	t.Cleanup(func() { must(t, errors.Join(replica.Close(), db.Close(), pair.Stop(context.Background()))) })
	return db, replica, pair
}

func run(t *testing.T, db *postgres.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := db.Run(t.Context(), postgres.SQL(s), nil)
		must(t, err)
	}
}

// Replay that conflicts with a statement ends it. The primary answers, and the next read uses the
// replica again.
func TestReplayEndsAStatement(t *testing.T) {
	t.Parallel()
	db, replica, pair := openPair(t, 2)
	run(t, db, "CREATE TABLE kept (n int)")
	_, err := replica.Bun().ExecContext(t.Context(), "SELECT 1")
	must(t, err)
	must(t, pair.Configure(t.Context(), "max_standby_streaming_delay", "0"))
	slow := postgres.SQL(`SELECT pg_is_in_recovery(), (SELECT count(*) FROM kept),
		pg_sleep(CASE WHEN pg_is_in_recovery() THEN 1.5 ELSE 0 END)::text`)
	var onStandby bool
	var count int
	var slept string
	truncated := make(chan error, 1)
	time.AfterFunc(500*time.Millisecond, func() {
		_, err := db.Run(t.Context(), postgres.SQL("TRUNCATE kept"), nil)
		truncated <- err
	})
	must(t, db.Get(postgres.WithReplica(t.Context()), slow, nil, &onStandby, &count, &slept))
	must(t, <-truncated)
	if onStandby || replica.FellBack(postgres.FallbackRefused) != 1 {
		t.Errorf("on the standby: %t, fallbacks: %d", onStandby, replica.FellBack(postgres.FallbackRefused))
	}
	must(t, pair.CatchUp(t.Context()))
	must(t, db.Get(postgres.WithReplica(t.Context()), postgres.SQL(`SELECT pg_is_in_recovery()`), nil, &onStandby))
	if !onStandby {
		t.Error("the next read skips the replica")
	}
}

// The replica's connections are bounded: the primary takes the overflow, which suspends nothing.
// Standbys refuse writes, and the primary performs them.
func TestReplicaRefuses(t *testing.T) {
	t.Parallel()
	db, replica, _ := openPair(t, 1)
	run(t, db, "CREATE TABLE kept (n int)")
	isStandby := func() (on bool) {
		must(t, db.Get(postgres.WithReplica(t.Context()), postgres.SQL(`SELECT pg_is_in_recovery()`), nil, &on))
		return on
	}
	err := db.InSnapshot(postgres.WithReplica(t.Context()), func(tx postgres.Tx) error {
		if isStandby() || replica.FellBack(postgres.FallbackBusy) != 1 {
			t.Error("a read beyond the connections did not go to the primary")
		}
		var on bool
		err := tx.Get(t.Context(), postgres.SQL(`SELECT pg_is_in_recovery()`), nil, &on)
		if !on {
			t.Error("the snapshot is not the standby's")
		}
		return err
	})
	must(t, err)
	if !isStandby() {
		t.Error("the replica is suspended")
	}
	var n int
	must(t, db.Get(postgres.WithReplica(t.Context()), postgres.SQL(`INSERT INTO kept VALUES (7) RETURNING n`), nil, &n))
	if n != 7 || replica.FellBack(postgres.FallbackRefused) != 1 {
		t.Errorf("a write returned %d, with %d refusals", n, replica.FellBack(postgres.FallbackRefused))
	}
	if _, err := replica.Bun().ExecContext(t.Context(), "INSERT INTO kept VALUES (8)"); err == nil {
		t.Error("the replica accepts writes")
	}
}

// A replica's pool refuses a primary, and a pooler.
func TestReplicaIsAStandby(t *testing.T) {
	t.Parallel()
	db, _, pair := openPair(t, 1)
	wrong, err := postgres.OpenReplica(postgres.Config{DSN: pair.Primary().DatabaseURL}, replicaStatements)
	must(t, err)
	t.Cleanup(func() { must(t, wrong.Close()) })
	db.UseReplica(wrong)
	var on bool
	must(t, db.Get(postgres.WithReplica(t.Context()), postgres.SQL(`SELECT pg_is_in_recovery()`), nil, &on))
	if on || wrong.Served() != 0 || wrong.FellBack(postgres.FallbackUnavailable) != 1 {
		t.Errorf("the primary serves as its own replica: %d reads", wrong.Served())
	}
	if _, err := postgres.OpenReplica(postgres.Config{Pooled: true}, replicaStatements); err == nil {
		t.Error("a pooler is accepted")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
