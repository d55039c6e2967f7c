package postgres

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed durability.sql
var durabilitySettings string

// durableValues are the values of a setting with which a commit survives a crash of the server;
// with synchronous replication, also the loss of the server. remote_write and local do not wait for
// a standby's disk.
var durableValues = map[string][]string{
	"fsync":              {"on", "true", "yes", "1"},
	"full_page_writes":   {"on", "true", "yes", "1"},
	"synchronous_commit": {"on", "true", "yes", "1", "remote_apply"},
}

func isDurable(setting, value string) bool {
	return slices.Contains(durableValues[setting], strings.ToLower(value))
}

// RequireDurability makes sure that commits of this pool survive a crash. It returns ErrNotDurable
// with every setting of the server or the role that is too weak. Afterwards the pool refuses
// connections whose synchronous_commit is too weak, and calls fail with ErrUnavailable.
func (db *DB) RequireDurability(ctx context.Context) error {
	db.conns.condemn() // the settings of a new session count
	err := db.CheckDurability(ctx)
	if err == nil {
		db.conns.durable.Store(true)
		db.conns.condemn()
	}
	return err
}

// CheckDurability checks as RequireDurability does, once, without the lasting effect.
func (db *DB) CheckDurability(ctx context.Context) error {
	var faults []string
	err := db.Native(ctx, func(conn *pgx.Conn) error {
		faults = nil
		rows, err := conn.Query(ctx, durabilitySettings)
		if err != nil {
			return err
		}
		var name, value, origin string
		_, err = pgx.ForEachRow(rows, []any{&name, &value, &origin}, func() error {
			if !isDurable(name, value) {
				faults = append(faults, fmt.Sprintf("%s is %s %s", name, value, origin))
			}
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: check durability: %w", err)
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %s", ErrNotDurable, strings.Join(faults, "; "))
	}
	return nil
}
