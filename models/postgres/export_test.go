package postgres

import "context"

// StoredSetting returns the stored value of a setting; "" without one.
func (db *DB) StoredSetting(ctx context.Context, name string) (string, error) {
	held, err := db.heldSettings(ctx, []string{name})
	if err != nil || len(held) != 1 || held[0].Stored == nil {
		return "", err
	}
	return *held[0].Stored, nil
}

// ForceDurability makes the pool require durability, on a test server that does not flush.
func (db *DB) ForceDurability() { db.conns.durable.Store(true) }
