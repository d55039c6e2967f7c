// Package migrations holds the schema as numbered SQL files and applies them.
//
// Files are named NNNN_theme.tx.up.sql. [Up] applies and records each file in one transaction, so
// that the next run can continue after a crash at any point. Migrations are additive: the binary of
// a release also runs on the next release's schema, so that a fleet can be upgraded replica by
// replica.
package migrations

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"
)

//go:embed *.tx.up.sql
var files embed.FS

const suffix = ".tx.up.sql"

const (
	// lockWait is how long Up waits for another Up.
	lockWait = 5 * time.Minute
	// stepTimeout bounds one migration.
	stepTimeout = time.Hour
)

// ErrOtherSchema reports a database whose migrations belong neither to this binary nor to a later
// release.
var ErrOtherSchema = errors.New("migrations: the database has the schema of another, unreleased version: " +
	"delete the data folder (SVC_DATA_DIR, default .svc) of `make run`; elsewhere use a new, empty database")

// migration is a migration file, or its record in schema_migrations.
type migration struct {
	name     string // without its suffix
	checksum string
	sql      string // empty in a record
}

// Up applies all pending migrations in order and returns how many it applied. Concurrent runs wait
// for each other. After an error, the migrations before the failed one stay applied.
func Up(ctx context.Context, db *bun.DB) (int, error) {
	own, err := embedded()
	if err != nil {
		return 0, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return 0, fmt.Errorf("migrations: connect: %w", err)
	}
	defer func() { _ = conn.Close() }()
	applied := 0
	err = conn.Raw(func(driver any) error {
		// A PgConn can send several statements in one string, and adds no timeouts of its own.
		//nolint:forcetypeassert // models.Open uses pgx only
		pg := driver.(interface{ Conn() *pgx.Conn }).Conn().PgConn()
		for {
			more, err := applyNext(ctx, pg, own)
			if err != nil || !more {
				return err
			}
			applied++
		}
	})
	if err != nil {
		return applied, fmt.Errorf("migrations: up: %w", err)
	}
	return applied, nil
}

// Pending returns the number of migrations that the database lacks. It returns 0 if the schema is
// this binary's or a later release's.
func Pending(ctx context.Context, db *bun.DB) (int, error) {
	own, err := embedded()
	if err != nil {
		return 0, err
	}
	var recorded []migration
	rows, err := db.QueryContext(ctx, readRecords)
	if isUndefinedTable(err) {
		return len(own), nil
	}
	if err != nil {
		return 0, fmt.Errorf("migrations: status: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var m migration
		if err := rows.Scan(&m.name, &m.checksum); err != nil {
			return 0, fmt.Errorf("migrations: status: %w", err)
		}
		recorded = append(recorded, m)
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("migrations: status: %w", err)
	}
	pending, err := missing(own, recorded)
	return len(pending), err
}

// embedded returns this binary's migrations in order.
func embedded() ([]migration, error) {
	names, err := fs.Glob(files, "*"+suffix) // sorted
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	all := make([]migration, len(names))
	for i, name := range names {
		content, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
		sum := sha256.Sum256(content)
		all[i] = migration{strings.TrimSuffix(name, suffix), hex.EncodeToString(sum[:]), string(content)}
	}
	return all, nil
}

// missing returns the binary's migrations that follow the recorded ones. It returns ErrOtherSchema
// if a recorded migration differs from the binary's.
func missing(own, recorded []migration) ([]migration, error) {
	for i := range min(len(own), len(recorded)) {
		if own[i].name != recorded[i].name || own[i].checksum != recorded[i].checksum {
			return nil, fmt.Errorf("%w (%s is not this binary's %s)", ErrOtherSchema, recorded[i].name, own[i].name)
		}
	}
	return own[min(len(own), len(recorded)):], nil
}

const (
	readRecords = `SELECT name, checksum FROM schema_migrations ORDER BY name COLLATE "C"`

	// lockKey is the key of the advisory lock that serialises runs of Up: "SvcMigr" in ASCII.
	lockKey = 0x5376634d696772
)

// begin opens the transaction of one migration and waits for other runs. Its settings and its lock
// end with the transaction, so that a connection pooler can be used and a killed run leaves nothing
// behind.
var begin = fmt.Sprintf(`
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = %d;
SET LOCAL statement_timeout = %d;
SELECT pg_advisory_xact_lock(%d);
SET LOCAL lock_timeout = 0;
CREATE TABLE IF NOT EXISTS schema_migrations (
    name       text        PRIMARY KEY,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT statement_timestamp()
);`, lockWait.Milliseconds(), stepTimeout.Milliseconds(), lockKey)

// applyNext applies and records the first pending migration in one transaction. It returns false if
// none was pending.
func applyNext(ctx context.Context, conn *pgconn.PgConn, own []migration) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait+stepTimeout)
	defer cancel()
	defer func() {
		if err != nil {
			_, _ = conn.Exec(ctx, "ROLLBACK").ReadAll() // if it fails, the pool drops the connection
		}
	}()
	if err := run(ctx, conn, begin); err != nil {
		return false, err
	}
	recorded, err := records(ctx, conn)
	if err != nil {
		return false, err
	}
	pending, err := missing(own, recorded)
	if err != nil {
		return false, err
	}
	if len(pending) == 0 {
		return false, run(ctx, conn, "COMMIT")
	}
	next := pending[0]
	if err := run(ctx, conn, next.sql); err != nil {
		return false, fmt.Errorf("%s: %w", next.name, err)
	}
	if conn.TxStatus() != 'T' {
		return false, fmt.Errorf("%s ends its own transaction", next.name)
	}
	record := fmt.Sprintf("INSERT INTO schema_migrations (name, checksum) VALUES ('%s', '%s')", next.name,
		next.checksum)
	if err := run(ctx, conn, record); err != nil {
		return false, fmt.Errorf("%s: record: %w", next.name, err)
	}
	if err := run(ctx, conn, "COMMIT"); err != nil {
		return false, fmt.Errorf("%s: commit: %w", next.name, err)
	}
	return true, nil
}

// records returns the recorded migrations. It returns ErrOtherSchema for a database that
// bun/migrate has migrated.
func records(ctx context.Context, conn *pgconn.PgConn) ([]migration, error) {
	results, err := conn.Exec(ctx, "SELECT to_regclass('bun_migrations'); "+readRecords).ReadAll()
	if err != nil {
		return nil, err
	}
	if table := results[0].Rows[0][0]; table != nil {
		return nil, fmt.Errorf("%w (it has a table %s)", ErrOtherSchema, table)
	}
	var all []migration
	for _, row := range results[1].Rows {
		all = append(all, migration{name: string(row[0]), checksum: string(row[1])})
	}
	return all, nil
}

// run executes statements and discards their results.
func run(ctx context.Context, conn *pgconn.PgConn, sql string) error {
	_, err := conn.Exec(ctx, sql).ReadAll()
	return err
}

func isUndefinedTable(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "42P01"
}
