package models

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"strconv"
	"time"
)

// IdempotencyKeyLife is how long a key replays its first request.
const IdempotencyKeyLife = 24 * time.Hour

// IdempotencyKey is a client's promise that requests with one key on one path are one request.
type IdempotencyKey struct {
	ClientID    ClientID
	Path        string // of the route on its Site, in canonical form
	Key         string // the header's value
	Fingerprint []byte // of the parsed body: equal bytes mean equal requests
}

// lock is the key of the Postgres advisory lock: 64 bits of SHA-256. Two keys with a colliding lock
// only wait for each other.
func (k *IdempotencyKey) lock() int64 {
	h := sha256.New()
	for _, part := range []string{"idempotency", k.ClientID.String(), k.Path, k.Key} {
		io.WriteString(h, strconv.Itoa(len(part))+":"+part) //nolint:errcheck // a hash takes everything
	}
	return int64(binary.BigEndian.Uint64(h.Sum(nil))) //nolint:gosec // any 64 bits will do
}
