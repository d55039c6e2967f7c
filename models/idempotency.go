package models

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"time"
)

// IdempotencyKeyLife is how long a key's answer is kept for replays.
const IdempotencyKeyLife = 24 * time.Hour

// ErrIdempotencyKeySyntax describes the fault of an Idempotency-Key header, worded for the partner.
var ErrIdempotencyKeySyntax = errors.New("must have 1 to 255 visible ASCII characters")

// IdempotencyKey is a client's promise that requests with one key on one path are one request.
type IdempotencyKey struct {
	ClientID    ClientID
	Path        string // of the route on its Site, in canonical form
	Key         string // the header's value
	Fingerprint []byte // of the parsed body: equal bytes mean equal requests
}

// ValidateIdempotencyKey checks the header's value: 1 to 255 characters from ! to ~.
func ValidateIdempotencyKey(s string) error {
	if len(s) < 1 || len(s) > 255 {
		return ErrIdempotencyKeySyntax
	}
	for i := range len(s) {
		if s[i] < '!' || s[i] > '~' {
			return ErrIdempotencyKeySyntax
		}
	}
	return nil
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
