package models

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"strconv"
	"time"
)

// IdempotencyKeyLife is how long after the first request with a key its repetitions get the same
// result. Afterwards the key counts as new.
const IdempotencyKeyLife = 24 * time.Hour

// IdempotencyKey identifies a request that a client may repeat. Requests with the same client, path
// and key take effect once.
type IdempotencyKey struct {
	ClientID    ClientID
	Path        string // of the request, in canonical form
	Key         string // the value of the header Idempotency-Key
	Fingerprint []byte // SHA-256 of the canonical body: equal bytes mean equal requests
}

// lock returns the key of the Postgres advisory lock: 64 bits of SHA-256. If two idempotency keys
// collide, one of two concurrent requests gets ErrIdempotencyKeyInFlight, and can be repeated.
func (k *IdempotencyKey) lock() int64 {
	h := sha256.New()
	for _, part := range []string{"idempotency", k.ClientID.String(), k.Path, k.Key} {
		io.WriteString(h, strconv.Itoa(len(part))+":"+part) //nolint:errcheck // a hash takes everything
	}
	return int64(binary.BigEndian.Uint64(h.Sum(nil))) //nolint:gosec // any 64 bits will do
}
