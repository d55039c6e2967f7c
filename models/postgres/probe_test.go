package postgres_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// openConns opens n connections and returns them to the pool.
func openConns(t *testing.T, db *postgres.DB, n int) {
	t.Helper()
	for range n {
		conn, err := db.Bun().Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
}

// selectOne runs a statement within db.Do, which maps its error.
func selectOne(t *testing.T, db *postgres.DB) error {
	t.Helper()
	return db.Do(t.Context(), func() error {
		_, err := db.Bun().ExecContext(t.Context(), "SELECT 1")
		return err
	})
}

// A statement whose connection freezes ends long before its deadline if the server answers over new
// connections. The other open connections are then not used any more.
func TestAbandonedStatementEndsEarly(t *testing.T) {
	t.Parallel()
	line, dsn := modelstest.Wire(t, modelstest.DSN(t))
	db := open(t, postgres.Config{DSN: dsn, MaxConns: 4, StatementTimeout: time.Minute})
	openConns(t, db, 4)
	tx, err := db.Bun().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	line.FreezeOpen()
	began := time.Now()
	if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err == nil {
		t.Error("a statement succeeds over a frozen connection")
	}
	_ = tx.Rollback()
	if err := selectOne(t, db); err != nil {
		t.Errorf("the next statement: %v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the statements took %s", took)
	}
}

// An abandoned statement reports that Postgres is unavailable, not that the caller's context ended.
func TestAbandonedStatementIsUnavailable(t *testing.T) {
	t.Parallel()
	line, dsn := modelstest.Wire(t, modelstest.DSN(t))
	db := open(t, postgres.Config{DSN: dsn, MaxConns: 1, StatementTimeout: time.Minute})
	// The pool checks a connection that was idle for a second, and replaces a frozen one before a
	// statement uses it. On a slow machine the test therefore needs several tries.
	for range 10 {
		openConns(t, db, 1)
		line.FreezeOpen()
		err := selectOne(t, db)
		if errors.Is(err, postgres.ErrUnavailable) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		line.Release()
	}
	t.Error("no statement was abandoned")
}

// Calls that wait for a connection while all are frozen get new ones, however many wait.
func TestWaitingCallsGetNewConnections(t *testing.T) {
	t.Parallel()
	line, dsn := modelstest.Wire(t, modelstest.DSN(t))
	const conns = 4
	db := open(t, postgres.Config{DSN: dsn, MaxConns: conns, StatementTimeout: time.Minute})
	var held []interface{ Close() error }
	for range conns {
		conn, err := db.Bun().Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	line.FreezeOpen()
	const calls = 4 * conns
	errs := make(chan error, calls)
	for range calls {
		go func() { errs <- selectOne(t, db) }()
	}
	for deadline := time.Now().Add(time.Minute); db.Stats().WaitCount < calls; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the calls do not wait for a connection")
		}
	}
	db.Reconnect()
	for _, conn := range held {
		_ = conn.Close()
	}
	for range calls {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// A statement that the server works on is not abandoned, however slow it is.
func TestSlowStatementIsNotAbandoned(t *testing.T) {
	t.Parallel()
	db := open(t, postgres.Config{DSN: modelstest.DSN(t), MaxConns: 1})
	// The statement lasts longer than probeAfter, so that the pool asks the server about it.
	if _, err := db.Bun().ExecContext(t.Context(), "SELECT pg_sleep(4)"); err != nil {
		t.Error(err)
	}
}
