// Package migrations holds the schema as numbered SQL files and applies them.
//
// Migrations are additive: a release's binary runs on the schema of the next one, so that a fleet can be
// rolled forward replica by replica. Each file NNNN_name.tx.up.sql has its NNNN_name.tx.down.sql.
package migrations

import (
	"context"
	"embed"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/migrate"
)

//go:embed *.sql
var files embed.FS

// Up applies every migration that the database lacks, all or none of them seen by others' Up at a time: a lock
// makes a second caller wait its turn. It reports how many it applied.
func Up(ctx context.Context, db *bun.DB) (int, error) {
	return locked(ctx, db, func(m *migrate.Migrator) (int, error) {
		group, err := m.Migrate(ctx)
		if err != nil {
			return 0, fmt.Errorf("migrations: up: %w", err)
		}
		return len(group.Migrations), nil
	})
}

// Down takes back the migrations that the last Up applied. It reports how many.
func Down(ctx context.Context, db *bun.DB) (int, error) {
	return locked(ctx, db, func(m *migrate.Migrator) (int, error) {
		group, err := m.Rollback(ctx)
		if err != nil {
			return 0, fmt.Errorf("migrations: down: %w", err)
		}
		return len(group.Migrations), nil
	})
}

// Pending counts the migrations that the database lacks; 0 means that this binary's schema is there.
func Pending(ctx context.Context, db *bun.DB) (int, error) {
	m, err := migrator(db)
	if err != nil {
		return 0, err
	}
	status, err := m.MigrationsWithStatus(ctx)
	if err != nil {
		return 0, fmt.Errorf("migrations: status: %w", err)
	}
	return len(status.Unapplied()), nil
}

func migrator(db *bun.DB) (*migrate.Migrator, error) {
	all := migrate.NewMigrations()
	if err := all.Discover(files); err != nil {
		return nil, fmt.Errorf("migrations: read the embedded files: %w", err)
	}
	return migrate.NewMigrator(db, all, migrate.WithMarkAppliedOnSuccess(true)), nil
}

// lockKey is this schema's place among Postgres's advisory locks.
const lockKey = 0x5376634d696772 // "SvcMigr"

// locked runs do while holding the migration lock, which ends with its connection whatever happens to us
// (bun/migrate's own lock is a row, which a crash leaves behind).
func locked(ctx context.Context, db *bun.DB, do func(*migrate.Migrator) (int, error)) (int, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return 0, fmt.Errorf("migrations: connect: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock(?)", lockKey); err != nil {
		return 0, fmt.Errorf("migrations: lock: %w", err)
	}
	defer func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock(?)", lockKey)
	}()
	m, err := migrator(db)
	if err != nil {
		return 0, err
	}
	if err := m.Init(ctx); err != nil {
		return 0, fmt.Errorf("migrations: set up: %w", err)
	}
	return do(m)
}
