package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

// Session runs statements. A DB runs each statement by itself, and a Tx runs all in its
// transaction.
type Session interface {
	// Get runs a statement that returns one row. It scans the row into dest: a pointer to a struct,
	// by column names, or pointers to scalars, by position. sql.ErrNoRows: there is no row.
	Get(ctx context.Context, s Statement, args Args, dest ...any) error
	// Select runs a statement and scans its rows by column names into dest, a pointer to a slice of
	// structs or of scalars.
	Select(ctx context.Context, s Statement, args Args, dest any) error
	// Run runs a statement and returns the number of rows that it changed.
	Run(ctx context.Context, s Statement, args Args) (int, error)
}

// Tx is a transaction of DB.InTx or DB.InSnapshot. The methods of the embedded bun.Tx use Bun's
// models and query builder. Get, Select and Run send a Statement.
type Tx struct {
	bun.Tx
	db *bun.DB // scans rows by name
}

func (tx Tx) sender() sender { return sender{tx.Tx.Tx, tx.db} }

// Get implements Session.
func (tx Tx) Get(ctx context.Context, s Statement, args Args, dest ...any) error {
	return tx.sender().get(ctx, s, args, dest)
}

// Select implements Session.
func (tx Tx) Select(ctx context.Context, s Statement, args Args, dest any) error {
	return tx.sender().selectRows(ctx, s, args, dest)
}

// Run implements Session.
func (tx Tx) Run(ctx context.Context, s Statement, args Args) (int, error) {
	return tx.sender().run(ctx, s, args)
}

func (db *DB) sender() sender { return sender{db.bun.DB, db.bun} }

// Get implements Session, with the errors and retries of Do. It may run on the replica; see Read.
func (db *DB) Get(ctx context.Context, s Statement, args Args, dest ...any) error {
	return db.read(ctx, func(on source) error { return on.get(ctx, s, args, dest) })
}

// Select implements Session, with the errors and retries of Do. It may run on the replica; see
// Read.
func (db *DB) Select(ctx context.Context, s Statement, args Args, dest any) error {
	return db.read(ctx, func(on source) error { return on.selectRows(ctx, s, args, dest) })
}

// Run implements Session, with the errors and retries of Do.
func (db *DB) Run(ctx context.Context, s Statement, args Args) (n int, err error) {
	err = db.Do(ctx, func() error {
		n, err = db.sender().run(ctx, s, args)
		return err
	})
	return n, err
}

// executor is a pool, a connection or a transaction of database/sql. It sends arguments to the
// server apart from the statement, so that each connection prepares a statement once.
type executor interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// sender sends statements and scans their rows.
type sender struct {
	on      executor
	scanner *bun.DB // scans rows by name
}

func (o sender) get(ctx context.Context, s Statement, args Args, dest []any) error {
	rows, err := o.query(ctx, s, args)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	if err := o.scanRow(ctx, rows, dest); err != nil {
		return err
	}
	return rows.Close() // reports an error that followed the row
}

func (o sender) selectRows(ctx context.Context, s Statement, args Args, dest any) error {
	rows, err := o.query(ctx, s, args)
	if err != nil {
		return err
	}
	return ScanRows(ctx, o.scanner, rows, dest)
}

func (o sender) query(ctx context.Context, s Statement, args Args) (*sql.Rows, error) {
	values, err := s.Bind(args)
	if err != nil {
		return nil, err
	}
	return o.on.QueryContext(ctx, s.text, values...)
}

func (o sender) run(ctx context.Context, s Statement, args Args) (int, error) {
	values, err := s.Bind(args)
	if err != nil {
		return 0, err
	}
	result, err := o.on.ExecContext(ctx, s.text, values...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// scanRow scans the current row into dest: by name into one struct, else by position.
func (o sender) scanRow(ctx context.Context, rows *sql.Rows, dest []any) error {
	if len(dest) == 1 && isStruct(dest[0]) {
		return o.scanner.ScanRow(ctx, rows, dest[0])
	}
	return rows.Scan(dest...)
}

// LongStatement is the limit, for AllowLongStatements, of a statement that may read all rows of a
// Site or partition.
const LongStatement = 10 * time.Minute

// AllowLongStatements raises the time limit of the transaction's further statements: on the server
// by a setting, and on the client for statements with the returned context.
func (tx Tx) AllowLongStatements(ctx context.Context, limit time.Duration) (context.Context, error) {
	_, err := tx.Tx.ExecContext(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", limit.Milliseconds()))
	return context.WithValue(ctx, limitKey{}, limit+answerGrace), err
}

// limitStatementsSQL sets statement_timeout to a number of milliseconds, unless the session has a
// lower value.
const limitStatementsSQL = `SELECT set_config('statement_timeout', least(%d,
    nullif(extract(epoch FROM current_setting('statement_timeout')::interval) * 1000, 0))::int::text, true)`

// LimitStatements lowers the server's time limit of the transaction's further statements. If the
// limit of the pool is lower, it stays.
func (tx Tx) LimitStatements(ctx context.Context, limit time.Duration) error {
	_, err := tx.Tx.ExecContext(ctx, fmt.Sprintf(limitStatementsSQL, limit.Milliseconds()))
	return err
}
