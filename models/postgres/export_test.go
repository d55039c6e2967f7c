package postgres

// ForceDurability makes the pool require durability, on a test server that does not flush.
func (db *DB) ForceDurability() { db.conns.durable.Store(true) }
