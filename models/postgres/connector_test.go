package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"partnerbilling/deploy/local"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

func TestMain(m *testing.M) { modelstest.Main(m) }

// open opens a pool that is closed with the test.
func open(t *testing.T, cfg postgres.Config) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func awaitPing(t *testing.T, db *postgres.DB, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for {
		err := db.Ping(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("still not after %s: %v", within, err)
		}
	}
}

// A statement on a recently used, unchecked connection ends by its own deadline.
func TestStatementOnFrozenConnection(t *testing.T) {
	t.Parallel()
	line, dsn := modelstest.Wire(t, modelstest.DSN(t))
	db := open(t, postgres.Config{DSN: dsn, MaxConns: 1, StatementTimeout: 500 * time.Millisecond})
	conn, err := db.Bun().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	line.Freeze()
	began := time.Now()
	_, err = conn.ExecContext(context.Background(), "SELECT 1")
	if took := time.Since(began); err == nil || took > 10*time.Second {
		t.Errorf("%v after %s", err, took)
	}
}

// The client's deadline covers a silent server only. The server itself ends a slow statement, and
// its connection stays.
func TestSlowStatementKeepsItsConnection(t *testing.T) {
	t.Parallel()
	db := open(t, postgres.Config{DSN: modelstest.DSN(t), MaxConns: 1, StatementTimeout: 100 * time.Millisecond})
	before := backend(t, db)
	_, err := db.Bun().ExecContext(t.Context(), "SELECT pg_sleep(60)")
	if err == nil || !strings.Contains(err.Error(), "57014") {
		t.Fatal(err)
	}
	if after := backend(t, db); after != before {
		t.Errorf("connection %d was replaced by %d", before, after)
	}
}

func backend(t *testing.T, db *postgres.DB) (pid int) {
	t.Helper()
	if err := db.Bun().QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

// Connections are replaced at a maximum age.
func TestConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	db := open(t, postgres.Config{DSN: modelstest.DSN(t), MaxConns: 1, MaxConnAge: 50 * time.Millisecond})
	first := backend(t, db)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for backend(t, db) == first {
		if ctx.Err() != nil {
			t.Fatal("the connection is never replaced")
		}
	}
}

// privateServer starts a server for one test, and returns its URL and an administrator's session.
func privateServer(t *testing.T) (dsn string, admin *pgx.Conn) {
	t.Helper()
	servers, err := local.Temp(t.Context(), local.Options{Ephemeral: true, WithoutRedis: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = servers.Stop(context.Background()) })
	admin, err = pgx.Connect(t.Context(), servers.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(context.Background()) })
	return servers.DatabaseURL, admin
}

// setSystem changes a setting of the server for all sessions, and waits until it applies.
func setSystem(t *testing.T, admin *pgx.Conn, setting, value string) {
	t.Helper()
	for _, statement := range []string{fmt.Sprintf("ALTER SYSTEM SET %s = %s", setting, value),
		"SELECT pg_reload_conf()"} {
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for got := ""; got != value; {
		if err := admin.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&got); err != nil {
			t.Fatal(err)
		}
	}
}

// A server that becomes read-only is unavailable: a write on an open connection drops it, new
// connections are refused, and Ping fails.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	dsn, admin := privateServer(t)
	db := open(t, postgres.Config{DSN: dsn, MaxConns: 1})
	write := postgres.SQL("CREATE TABLE unwanted ()")
	before := backend(t, db)
	setSystem(t, admin, "default_transaction_read_only", "on")
	for range 2 { // on the living connection, then on a new one
		if _, err := db.Run(t.Context(), write, nil); !errors.Is(err, postgres.ErrUnavailable) {
			t.Fatalf("a write: %v", err)
		}
	}
	if err := db.Ping(t.Context()); !errors.Is(err, postgres.ErrUnavailable) {
		t.Errorf("ping: %v", err)
	}
	setSystem(t, admin, "default_transaction_read_only", "off")
	if after := backend(t, db); after == before {
		t.Error("the connection was kept")
	}
	if err := db.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// hosts returns a URL with several servers.
func hosts(t *testing.T, dsn string, before ...string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = strings.Join(append(before, u.Host), ",")
	q := u.Query()
	q.Set("target_session_attrs", "read-write")
	u.RawQuery = q.Encode()
	return u.String()
}

// A first host that never answers delays only the first call, by one attempt. A caller with a
// shorter deadline still saves the next call that delay.
func TestHostThatNeverAnswers(t *testing.T) {
	t.Parallel()
	dsn := modelstest.DSN(t)
	silent, _ := modelstest.Wire(t, dsn)
	silent.Freeze()
	db := open(t, postgres.Config{DSN: hosts(t, dsn, silent.Address()), MaxConns: 8})
	hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := db.Ping(hasty); err == nil {
		t.Error("a caller without time got past a host that never answers")
	}
	awaitPing(t, db, 20*time.Second)
	quick, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for range 8 {
		conn, err := db.Bun().Conn(quick)
		if err != nil {
			t.Fatalf("a host that never answers is asked again: %v", err)
		}
		defer conn.Close()
	}
}

// The pool uses the host that accepts writes, at any position in the URL, and the new primary after
// a promotion.
func TestHostThatTakesWrites(t *testing.T) {
	t.Parallel()
	first, firstAdmin := privateServer(t)
	second, secondAdmin := privateServer(t)
	if _, err := secondAdmin.Exec(t.Context(), "ALTER ROLE CURRENT_USER PASSWORD '"+password(t, first)+
		"'"); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(second)
	if err != nil {
		t.Fatal(err)
	}
	db := open(t, postgres.Config{DSN: hosts(t, first, u.Host), MaxConns: 2})
	port := func() (port string) {
		t.Helper()
		if err := db.Bun().QueryRowContext(t.Context(), "SELECT current_setting('port')").Scan(&port); err != nil {
			t.Fatal(err)
		}
		return port
	}
	setSystem(t, secondAdmin, "default_transaction_read_only", "on")
	if got := port(); !strings.Contains(first, ":"+got+"/") {
		t.Errorf("connected to %s", got)
	}
	setSystem(t, firstAdmin, "default_transaction_read_only", "on")
	setSystem(t, secondAdmin, "default_transaction_read_only", "off")
	awaitPing(t, db, 10*time.Second)
	if got := port(); got != u.Port() {
		t.Errorf("after the promotion connected to %s", got)
	}
}

func password(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := u.User.Password()
	return secret
}
