package models

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"
)

// RailMemory is how long a rail keeps a key after the last call about it. After that, "never seen" proves nothing.
const RailMemory = 7 * 24 * time.Hour

// BatchKey is the digest that the rail keys of a batch's rows share. It derives from what a partner sends again when a
// submission was lost, so that a row that is submitted twice has one rail key.
type BatchKey [sha256.Size]byte

// NewBatchKey derives the key of a batch from its Site, its batchReference and the generation of the reference: how many
// batches the reference has named, this one included.
func NewBatchKey(site SiteID, batchReference string, generation int) BatchKey {
	return digest(site.String(), batchReference, strconv.Itoa(generation))
}

// Row is the rail key of the batch's row with this rowReference: "r1_", 32 hex digits for the batch, 32 for the row.
func (k BatchKey) Row(rowReference string) string {
	row := digest(string(k[:]), rowReference)
	return "r1_" + hex.EncodeToString(k[:16]) + hex.EncodeToString(row[:16])
}

// PaymentRailKey is the rail key of a payment intent's one debit. A payment that is begun again after a loss has the
// same key.
func PaymentRailKey(id PaymentIntentID) string { return "p1_" + id.String() }

// digest is the SHA-256 of fields, each behind its length as eight bytes, so that no two lists of fields are alike.
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
