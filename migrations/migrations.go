// Package migrations holds the schema as numbered SQL files and applies them.
//
// Files are named NNNN_theme.tx.up.sql. [Up] applies and records each of them in one database
// transaction, so that the next run can continue after a crash at any point. Files named
// NNNN_theme.up.sql build indexes concurrently. Their statements run one by one outside of a
// transaction, and a run after a crash repeats them. Migrations are additive: the binary of a
// release also runs on the next release's schema, so that a fleet can be upgraded process by
// process. A released file never changes, not even in a comment: databases record its checksum.
//
// Migrations run beside live traffic. While a statement waits for a lock, later requests wait
// behind it. The statement therefore gives up after lockTimeout, and Up tries again later.
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

//go:embed *.up.sql
var files embed.FS

const (
	suffix   = ".up.sql"
	txSuffix = ".tx" // before suffix: in one transaction
)

const (
	// lockTimeout is how long a statement of a migration waits for a lock. It is below the server's
	// deadlock_timeout: a concurrent index build waits for the transactions of other runs of Up,
	// while these wait for the builder's advisory lock. The other runs give up before Postgres
	// detects a deadlock.
	lockTimeout = 300 * time.Millisecond
	// lockPause is the time between two tries to apply a migration that does not get its locks, and
	// lockTries the maximum number of tries.
	lockPause = time.Second
	lockTries = 1800
	// apartLockTimeout is lockTimeout for statements outside of a transaction. Their waits block
	// neither reads nor writes.
	apartLockTimeout = 5 * time.Minute
	// stepTimeout bounds each statement. After answerTimeout without the server's answer, the
	// connection is closed.
	stepTimeout   = time.Hour
	answerTimeout = stepTimeout + time.Minute
)

// ErrOtherSchema reports a database whose migrations belong neither to this binary nor to a later
// release.
var ErrOtherSchema = errors.New("migrations: the database has the schema of another, unreleased version: " +
	"delete the data folder (SVC_DATA_DIR, default .svc) of `make run`; elsewhere use a new, empty database")

// migration is a migration file, or its record in schema_migrations.
type migration struct {
	name     string // without .tx and .up.sql
	checksum string // SHA-256 of the file in hexadecimal
	sql      string // empty in a record
	apart    bool   // its statements run one by one, outside of a transaction
}

// errLocked reports a migration that did not get a lock. A migration in one transaction has then
// changed nothing. The next try repeats the statements of a migration outside of a transaction.
var errLocked = errors.New("other transactions hold its locks")

// Up applies all pending migrations in order and returns their number. Concurrent runs wait for
// each other; two of them may count the same migration. After an error, the migrations before the
// failed one stay applied. Up returns [ErrOtherSchema] for a database with other migrations.
func Up(ctx context.Context, db *bun.DB) (int, error) { return UpFrom(ctx, db, files) }

// Files returns this binary's migration files.
func Files() fs.FS { return files }

// UpFrom is Up for other files, such as those of a later release.
func UpFrom(ctx context.Context, db *bun.DB, files fs.FS) (int, error) {
	return upFrom(ctx, db, files, answerTimeout)
}

// upFrom is UpFrom with the given answerTimeout.
func upFrom(ctx context.Context, db *bun.DB, files fs.FS, answerTimeout time.Duration) (int, error) {
	own, err := read(files)
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
		s := session{driver.(interface{ Conn() *pgx.Conn }).Conn().PgConn(), answerTimeout}
		for {
			progress, err := s.applyWhenUnlocked(ctx, own)
			if err != nil || !progress {
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

// Pending returns the number of migrations that the database lacks: 0 if the schema is this
// binary's or a later release's. It returns [ErrOtherSchema] if a recorded migration differs from
// the binary's.
func Pending(ctx context.Context, db *bun.DB) (int, error) {
	own, err := read(files)
	if err != nil {
		return 0, err
	}
	var recorded []migration
	rows, err := db.QueryContext(ctx, readRecords)
	if IsUndefinedTable(err) {
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

// read returns the migrations of files in order.
func read(files fs.FS) ([]migration, error) {
	names, err := fs.Glob(files, "*"+suffix) // sorted
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	all := make([]migration, len(names))
	for i, file := range names {
		content, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
		sum := sha256.Sum256(content)
		name, inTx := strings.CutSuffix(strings.TrimSuffix(file, suffix), txSuffix)
		all[i] = migration{name, hex.EncodeToString(sum[:]), string(content), !inTx}
	}
	return all, nil
}

// missing returns the binary's migrations that follow the recorded ones. It returns ErrOtherSchema
// if a recorded migration differs from the binary's migration at the same position.
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

// begin opens the transaction of one migration, takes the advisory lock, and creates the table of
// records. The settings and the lock end with the transaction, so that a killed run leaves nothing
// behind.
var begin = fmt.Sprintf(`
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = %d;
SET LOCAL statement_timeout = %d;
SELECT pg_advisory_xact_lock(%d);
CREATE TABLE IF NOT EXISTS schema_migrations (
    name       text        PRIMARY KEY,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT statement_timestamp()
);`, lockTimeout.Milliseconds(), stepTimeout.Milliseconds(), lockKey)

// session is the connection of one run of Up.
type session struct {
	conn          *pgconn.PgConn
	answerTimeout time.Duration
}

// applyWhenUnlocked calls applyNext until that gets its locks, at most lockTries times.
func (s session) applyWhenUnlocked(ctx context.Context, own []migration) (progress bool, err error) {
	for range lockTries {
		if progress, err = s.applyNext(ctx, own); !errors.Is(err, errLocked) {
			return progress, err
		}
		select {
		case <-ctx.Done():
			return false, errors.Join(ctx.Err(), err)
		case <-time.After(lockPause):
		}
	}
	return false, err
}

// applyNext applies and records the first pending migration. It returns false if none was pending,
// and errLocked if it did not get a lock.
func (s session) applyNext(ctx context.Context, own []migration) (progress bool, err error) {
	defer func() {
		if err != nil && s.conn.TxStatus() != 'I' {
			_ = s.run(ctx, "ROLLBACK") // if it fails, the pool drops the connection
		}
	}()
	if err := s.run(ctx, begin); err != nil {
		return false, locked(err)
	}
	recorded, err := s.records(ctx)
	if err != nil {
		return false, locked(err)
	}
	pending, err := missing(own, recorded)
	if err != nil {
		return false, err
	}
	if len(pending) == 0 {
		return false, s.run(ctx, "COMMIT")
	}
	if next := pending[0]; next.apart {
		return true, s.applyApart(ctx, next)
	} else if err := s.applyInTx(ctx, next); err != nil {
		return false, err
	}
	return true, nil
}

// applyInTx applies and records a migration in the open transaction, and commits it.
func (s session) applyInTx(ctx context.Context, next migration) error {
	if err := s.run(ctx, next.sql); err != nil {
		return fmt.Errorf("%s: %w", next.name, locked(err))
	}
	if s.conn.TxStatus() != 'T' {
		return fmt.Errorf("%s ends its own transaction", next.name)
	}
	if err := s.run(ctx, next.record()); err != nil {
		return fmt.Errorf("%s: record: %w", next.name, err)
	}
	if err := s.run(ctx, "COMMIT"); err != nil {
		return fmt.Errorf("%s: commit: %w", next.name, err)
	}
	return nil
}

// applyApart ends the open transaction, runs the statements of a migration one by one, and records
// the migration. An advisory lock of the session replaces the lock of the transaction, so that no
// other run builds the same index. A pooler in transaction mode would lose the session's lock. If
// applyApart cannot release the lock, the end of the session does.
func (s session) applyApart(ctx context.Context, next migration) (err error) {
	defer func() {
		const end = "SELECT pg_advisory_unlock_all(); RESET lock_timeout; RESET statement_timeout"
		err = errors.Join(err, s.run(ctx, end))
	}()
	begin := fmt.Sprintf("COMMIT; SET lock_timeout = %d; SELECT pg_advisory_lock(%d); "+
		"SET lock_timeout = %d; SET statement_timeout = %d",
		lockTimeout.Milliseconds(), lockKey, apartLockTimeout.Milliseconds(), stepTimeout.Milliseconds())
	if err := s.run(ctx, begin); err != nil {
		return locked(err)
	}
	recorded, err := s.records(ctx)
	if err != nil {
		return locked(err)
	}
	for _, m := range recorded {
		if m.name == next.name { // another run was faster
			return nil
		}
	}
	for _, statement := range next.statements() {
		if err := s.run(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", next.name, locked(err))
		}
	}
	return s.run(ctx, next.record())
}

// statements returns the statements of a migration. Each ends with a semicolon at the end of a
// line.
func (m migration) statements() (all []string) {
	for _, s := range strings.SplitAfter(m.sql, ";\n") {
		if strings.TrimSpace(s) != "" {
			all = append(all, s)
		}
	}
	return all
}

// record returns the statement that records the migration.
func (m migration) record() string {
	return fmt.Sprintf("INSERT INTO schema_migrations (name, checksum) VALUES ('%s', '%s')", m.name, m.checksum)
}

// locked wraps the error of a lock time-out or a deadlock in errLocked. It returns other errors
// unchanged.
func locked(err error) error {
	var pg *pgconn.PgError
	const lockNotAvailable, deadlock = "55P03", "40P01"
	if errors.As(err, &pg) && (pg.Code == lockNotAvailable || pg.Code == deadlock) {
		return fmt.Errorf("%w: %w", errLocked, err)
	}
	return err
}

// records returns the recorded migrations, without their text. It returns ErrOtherSchema for a
// database that bun/migrate has migrated.
func (s session) records(ctx context.Context) ([]migration, error) {
	results, err := s.exec(ctx, "SELECT to_regclass('bun_migrations'); "+readRecords)
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

// run executes statements in one message and discards their results.
func (s session) run(ctx context.Context, sql string) error {
	_, err := s.exec(ctx, sql)
	return err
}

// exec executes statements in one message and returns their results.
func (s session) exec(ctx context.Context, sql string) ([]*pgconn.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, s.answerTimeout)
	defer cancel()
	return s.conn.Exec(ctx, sql).ReadAll()
}

// IsUndefinedTable reports whether a statement failed because a table does not exist, as before the
// first migration.
func IsUndefinedTable(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "42P01"
}
