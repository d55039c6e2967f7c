package models

// LockForTest is the advisory lock of the key, for tests that simulate another request.
func (k *IdempotencyKey) LockForTest() int64 { return k.lock() }
