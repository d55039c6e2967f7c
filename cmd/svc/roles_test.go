package main

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"partnerbilling/models/modelstest"
)

// rolesDatabase is a database with a runtime and a reading role of its own.
type rolesDatabase struct{ owner, runtime, read string } // URLs

func newRolesDatabase(t *testing.T) rolesDatabase {
	t.Helper()
	db := rolesDatabase{owner: modelstest.DSN(t)}
	conn := connectTo(t, db.owner)
	suffix := strings.ToLower(conn.Config().Database)
	runtime, read := suffix+"_runtime", suffix+"_read"
	statements := []string{
		"CREATE ROLE " + runtime + " LOGIN PASSWORD 'secret'", "CREATE ROLE " + read + " LOGIN PASSWORD 'secret'",
	}
	code, grants, stderr := svc(t, nil, "migrate", "grants", "--owner", conn.Config().User, "--runtime", runtime,
		"--read", read)
	if code != 0 {
		t.Fatal(stderr)
	}
	for _, statement := range append(statements, grants, grants) { // repetition changes nothing
		if _, err := conn.PgConn().Exec(t.Context(), statement).ReadAll(); err != nil {
			t.Fatalf("%v: %s", err, statement)
		}
	}
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), db.owner) // the test's context has ended
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		for _, role := range []string{runtime, read} {
			for _, statement := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
				if _, err := conn.Exec(context.Background(), statement); err != nil {
					t.Error(err)
				}
			}
		}
	})
	as := func(role string) string {
		u, err := url.Parse(db.owner)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(role, "secret")
		return u.String()
	}
	db.runtime, db.read = as(runtime), as(read)
	return db
}

func connectTo(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// The runtime role runs everything of the service, and can change neither the schema nor the audit
// log's past.
func TestRuntimeRole(t *testing.T) {
	if testing.Short() {
		t.Skip("a drill with whole servers")
	}
	t.Parallel()
	db := newRolesDatabase(t)
	f := newFleet(t, db.owner, "SVC_DATABASE_URL", db.runtime)
	f.startAPI()
	f.startWorker()
	f.testEveryNoun()
	f.drainTogether(2)
	for _, args := range [][]string{
		{"audit"}, {"organisation", "add", "another"}, {"log"}, {"keys", "rotate", "accessToken"}, {"alerts"}, {"recount"},
	} {
		if code, out, stderr := svc(t, f.env, append([]string{"admin"}, args...)...); code != 0 {
			t.Errorf("svc admin %s: %s%s", args, out, stderr)
		}
	}
	requirePartitions(t, connectTo(t, db.runtime))
	requireForbidden(t, connectTo(t, db.runtime),
		"DROP TABLE batches", "ALTER TABLE batches ADD COLUMN x int", "TRUNCATE batches", "CREATE TABLE x ()",
		"CREATE TEMPORARY TABLE x ()", "CREATE FUNCTION x() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"ALTER TABLE audit_log DISABLE TRIGGER audit_log_append_only", "UPDATE audit_log SET actor = 'x'",
		"DELETE FROM audit_log", "TRUNCATE audit_log", "DELETE FROM schema_migrations",
		"INSERT INTO schema_migrations (name, checksum) VALUES ('x', 'x')")
}

// The reading role reads everything but secrets, and writes nothing even in a session that allows
// writes.
func TestReadingRole(t *testing.T) {
	if testing.Short() {
		t.Skip("a drill with whole servers")
	}
	t.Parallel()
	db := newRolesDatabase(t)
	conn := connectTo(t, db.read)
	for _, table := range []string{"batch_rows", "ledger_entries", "customer_links", "webhook_events", "audit_log"} {
		if _, err := conn.Exec(t.Context(), "SELECT count(*) FROM "+table); err != nil {
			t.Error(err)
		}
	}
	const insert = "INSERT INTO alerts (kind, subject, raised_at) VALUES ('x', 'x', 0)"
	var refused *pgconn.PgError
	if _, err := conn.Exec(t.Context(), insert); !errors.As(err, &refused) {
		t.Error(err)
	}
	if _, err := conn.Exec(t.Context(), "SET default_transaction_read_only = off"); err != nil {
		t.Fatal(err)
	}
	requireForbidden(t, conn, insert, "UPDATE batches SET state = state", "DELETE FROM ledger_entries",
		"TRUNCATE alerts",
		"CREATE TABLE x ()", "SELECT sealed FROM service_keys", "SELECT FROM client_secrets", "SELECT FROM webhook_secrets",
		"SELECT raise_alert('x', 'x', NULL, NULL, '', '')",
		"SELECT make_first_partitions('batch_rows', 'week', 9)", "SELECT kept_in_partition('batch_rows', 'x', 0, 0)",
		"SELECT make_partition('batch_rows', 'week', '2001-01-01T00:00Z', 0)",
		"SELECT drop_partition('webhook_events', name, 0, 0) FROM partitions WHERE parent = 'webhook_events'")
}

// requirePartitions requires that the role makes, reads and drops partitions.
func requirePartitions(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for _, statement := range []string{
		"SELECT make_partition('batch_rows', 'week', '2001-01-01T00:00Z', 0)",
		"SELECT count(*) = 0 FROM batch_rows_p20010101",
		"SELECT drop_partition('batch_rows', 'batch_rows_p20010101', 0, 0)",
	} {
		var done bool
		if err := conn.QueryRow(t.Context(), statement).Scan(&done); err != nil || !done {
			t.Errorf("%s: %t, %v", statement, done, err)
		}
	}
}

// requireForbidden requires that the role lacks the privilege for each statement.
func requireForbidden(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		_, err := conn.Exec(t.Context(), statement)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "42501" {
			t.Errorf("%s: %v", statement, err)
		}
	}
}
