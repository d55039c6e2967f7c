package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

// Tx is a transaction. Bun's models and query builder are its embedded methods; Get, Select and Run
// send a Statement.
type Tx struct {
	bun.Tx
	db *bun.DB // scans rows by name
}

func (tx Tx) session() session { return session{tx.Tx.Tx, tx.db} }

// Get runs a statement that returns one row, and scans it into dest: a pointer to a struct, by
// column names, or pointers to scalars, by position. sql.ErrNoRows: there is no row.
func (tx Tx) Get(ctx context.Context, s Statement, args Args, dest ...any) error {
	return tx.session().get(ctx, s, args, dest)
}

// Select runs a statement and scans its rows by column names into dest, a pointer to a slice of
// structs or of scalars.
func (tx Tx) Select(ctx context.Context, s Statement, args Args, dest any) error {
	return tx.session().selectRows(ctx, s, args, dest)
}

// Run runs a statement and returns the number of rows that it changed.
func (tx Tx) Run(ctx context.Context, s Statement, args Args) (int, error) {
	return tx.session().run(ctx, s, args)
}

func (db *DB) session() session { return session{db.bun.DB, db.bun} }

// Get is Tx.Get outside a transaction, with the errors and retries of Do.
func (db *DB) Get(ctx context.Context, s Statement, args Args, dest ...any) error {
	return db.Do(ctx, func() error { return db.session().get(ctx, s, args, dest) })
}

// Select is Tx.Select outside a transaction, with the errors and retries of Do.
func (db *DB) Select(ctx context.Context, s Statement, args Args, dest any) error {
	return db.Do(ctx, func() error { return db.session().selectRows(ctx, s, args, dest) })
}

// Run is Tx.Run outside a transaction, with the errors and retries of Do.
func (db *DB) Run(ctx context.Context, s Statement, args Args) (n int, err error) {
	err = db.Do(ctx, func() error {
		n, err = db.session().run(ctx, s, args)
		return err
	})
	return n, err
}

// executor is a pool or a transaction of database/sql, which sends arguments to the server apart from
// the statement, so that each connection prepares a statement once.
type executor interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// session sends statements and scans their rows.
type session struct {
	on      executor
	scanner *bun.DB
}

func (o session) get(ctx context.Context, s Statement, args Args, dest []any) error {
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

func (o session) selectRows(ctx context.Context, s Statement, args Args, dest any) error {
	rows, err := o.query(ctx, s, args)
	if err != nil {
		return err
	}
	return o.scanner.ScanRows(ctx, rows, dest) // closes rows
}

func (o session) query(ctx context.Context, s Statement, args Args) (*sql.Rows, error) {
	values, err := s.Bind(args)
	if err != nil {
		return nil, err
	}
	return o.on.QueryContext(ctx, s.text, values...)
}

func (o session) run(ctx context.Context, s Statement, args Args) (int, error) {
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

// scanRow scans the current row: by name into one struct, else by position.
func (o session) scanRow(ctx context.Context, rows *sql.Rows, dest []any) error {
	if len(dest) == 1 && isStruct(dest[0]) {
		return o.scanner.ScanRow(ctx, rows, dest[0])
	}
	return rows.Scan(dest...)
}

// longStatement bounds a statement that may read a whole table.
const longStatement = 10 * time.Minute

// AllowLongStatements raises the limit of the transaction's further statements to ten minutes: on the
// server by a setting, on the client through the returned context.
func (tx Tx) AllowLongStatements(ctx context.Context) (context.Context, error) {
	_, err := tx.Tx.ExecContext(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", longStatement.Milliseconds()))
	return context.WithValue(ctx, limitKey{}, longStatement+answerGrace), err
}
