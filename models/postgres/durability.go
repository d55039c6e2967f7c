package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// durableValues has, by setting, the values with which a commit survives a crash of the server.
// With synchronous replication, the commit also survives the loss of the server: the values
// remote_write and local are missing because they do not wait for a standby's disk.
var durableValues = map[string][]string{
	"fsync":              {"on", "true", "yes", "1"},
	"full_page_writes":   {"on", "true", "yes", "1"},
	"synchronous_commit": {"on", "true", "yes", "1", "remote_apply"},
}

func isDurable(setting, value string) bool {
	return slices.Contains(durableValues[setting], strings.ToLower(value))
}

// RequireDurability makes sure that commits of this pool survive a crash. It returns ErrNotDurable,
// with every setting that is too weak, if the server or the role does not guarantee that. After
// success, the pool refuses connections whose synchronous_commit has become too weak, and calls
// fail with ErrUnavailable.
func (db *DB) RequireDurability(ctx context.Context) error {
	db.conns.condemn() // check the settings of a new session
	err := db.CheckDurability(ctx)
	if err == nil {
		db.conns.durable.Store(true)
		db.conns.condemn()
	}
	return err
}

// CheckDurability checks as RequireDurability does, but only once.
func (db *DB) CheckDurability(ctx context.Context) error {
	held, err := db.heldSettings(ctx, slices.Sorted(maps.Keys(durableValues)))
	if err != nil {
		return fmt.Errorf("postgres: check durability: %w", err)
	}
	var faults []string
	for _, h := range held {
		if !isDurable(h.Name, h.Session) {
			faults = append(faults, fmt.Sprintf("%s is %s in a session of role %s", h.Name, h.Session, h.Role))
		}
		if h.Stored != nil && !isDurable(h.Name, *h.Stored) {
			faults = append(faults, fmt.Sprintf("%s is %s set for role %s or database %s", h.Name, *h.Stored, h.Role,
				h.Database))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %s", ErrNotDurable, strings.Join(faults, "; "))
	}
	return nil
}
