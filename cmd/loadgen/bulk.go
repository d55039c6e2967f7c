package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/uptrace/bun"
)

// bulkSettings are statements that speed up a database transaction which fills a table or builds an
// index. After them, the transaction checks no foreign key and fires no trigger.
var bulkSettings = []string{
	"SET LOCAL statement_timeout = 0", "SET LOCAL session_replication_role = replica",
	"SET LOCAL synchronous_commit = off", "SET LOCAL maintenance_work_mem = '512MB'",
}

// withoutIndexes calls do while a table has no index and its triggers do not fire. Then it builds
// the indexes again. If it fails, the caller must roll back the transaction tx.
func withoutIndexes(ctx context.Context, tx bun.Tx, table string, do func() error) error {
	drop, create, err := indexesOf(ctx, tx, table)
	if err != nil {
		return err
	}
	if err := execAll(ctx, tx.Tx, bulkSettings, drop); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return execAll(ctx, tx.Tx, create)
}

// indexesOf returns the statements that drop the indexes of a table, and those that build them
// again. On a partitioned table, they change all partitions. As in the migrations, the primary key
// is built last.
func indexesOf(ctx context.Context, tx bun.Tx, table string) (drop, create []string, err error) {
	err = tx.NewRaw(`
SELECT CASE WHEN c.oid IS NULL THEN format('DROP INDEX %s', i.indexrelid::regclass)
            ELSE format('ALTER TABLE %s DROP CONSTRAINT %I', i.indrelid::regclass, c.conname) END,
       CASE WHEN c.oid IS NULL THEN replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ')
            ELSE format('ALTER TABLE %s ADD CONSTRAINT %I %s', i.indrelid::regclass, c.conname,
                        pg_get_constraintdef(c.oid)) END
FROM pg_index i LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype IN ('p', 'u')
WHERE i.indrelid = ?::regclass ORDER BY c.oid IS NOT NULL, i.indexrelid`, table).Scan(ctx, &drop, &create)
	return drop, create, err
}

// execer runs statements: a database or a database transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// execAll executes the statements of all lists, one by one. It stops at the first error.
func execAll(ctx context.Context, db execer, lists ...[]string) error {
	for _, statements := range lists {
		for _, statement := range statements {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
	}
	return nil
}
