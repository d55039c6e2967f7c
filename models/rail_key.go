package models

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// RailMemory is how long a rail keeps a key after the last call about it. Afterwards, the answer
// "never seen" does not prove that nothing was debited.
const RailMemory = 7 * 24 * time.Hour

// BatchKey is the digest of a batch that the rail keys of its rows contain. It derives from values
// that stay the same when a partner submits a batch once more after the database has lost it. The
// rows then have the same rail keys as before, and the rail debits none of them twice.
type BatchKey [sha256.Size]byte

// NewBatchKey derives the key of a batch from its Site, its batchReference and its generation: the
// number of batches of the Site that have had this reference, including this one.
func NewBatchKey(site SiteID, batchReference string, generation int) BatchKey {
	return digest(site.String(), batchReference, strconv.Itoa(generation))
}

// Row returns the rail key of the batch's row with this rowReference: "r1_", 32 hex digits for the
// batch, and 32 for the row.
func (k BatchKey) Row(rowReference string) string {
	row := digest(string(k[:]), rowReference)
	return "r1_" + hex.EncodeToString(k[:keyedBytes]) + hex.EncodeToString(row[:keyedBytes])
}

// keyedBytes is the number of bytes of a digest that a rail key holds.
const keyedBytes = 16

// batchOfKey returns the bytes of a row's rail key that name its batch, or false if no row can have
// the key.
func batchOfKey(key string) (batch [keyedBytes]byte, ok bool) {
	digits, ok := strings.CutPrefix(key, "r1_")
	sums, err := hex.DecodeString(digits)
	if !ok || err != nil || len(sums) != 2*keyedBytes {
		return batch, false
	}
	return [keyedBytes]byte(sums[:keyedBytes]), true
}

// PaymentRailKey returns the rail key of a payment intent's one debit: "p1_" and the id. A payment
// that begins again after a loss of the database has the same key.
func PaymentRailKey(id PaymentIntentID) string { return "p1_" + id.String() }

// digest returns the SHA-256 of the fields, each preceded by its length in eight bytes, so that
// different lists have different digests.
func digest(fields ...string) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, field := range fields {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(field)))
		h.Write(length[:])
		h.Write([]byte(field))
	}
	h.Sum(sum[:0])
	return sum
}
