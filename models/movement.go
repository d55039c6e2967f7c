package models

import (
	"crypto/sha256"

	"github.com/google/uuid"
)

// Movement is an entry of the ledger as partners see it: one debit of a batch row or a payment, in
// favour of a Site. A movement never changes. A correction adds a new movement, with the time at
// which the correction was recorded.
type Movement struct {
	RailKey           string          // of the debit; unique forever, and never shown to partners
	RecordedAt        Millis          // service time at which the ledger entry was written
	Amount            Amount          // in minor units of Currency
	Currency          string          // ISO 4217
	BatchReference    string          // "" for a payment
	RowReference      string          // "" for a payment
	CustomerReference string          // "" for a payment
	PaymentIntentID   PaymentIntentID // zero for a row
	OrderID           string          // "" for none
}

// ID returns the movement's identifier for partners. The identifier derives from stored values and
// never changes: a UUIDv7 with the movement's time, and a hash of the rail key in place of
// randomness.
func (m *Movement) ID() MovementID {
	const version, variant = 0x70, 0x80
	hash := sha256.Sum256([]byte(m.RailKey))
	id := uuid.UUID(hash[:16])
	for i := range 6 {
		id[i] = byte(m.RecordedAt >> (40 - 8*i)) //nolint:gosec // the byte at that position
	}
	id[6], id[8] = version|id[6]&0x0f, variant|id[8]&0x3f
	return MovementID(id)
}

// MovementPosition is a movement's position in the list, by RecordedAt and RailKey.
type MovementPosition = Position[string]

func (m *Movement) position() MovementPosition { return MovementPosition{m.RecordedAt, m.RailKey} }

// MovementQuery asks for one page of a Site's movements, ordered by RecordedAt and then RailKey,
// newest first.
type MovementQuery struct {
	SiteID    SiteID
	From      *Millis // inclusive; nil: no bound
	To        *Millis // inclusive; nil: no bound
	Direction Direction
	At        MovementPosition // the page holds the movements that follow it in Direction
	Limit     int              // maximum number of movements on the page, 1 to MaxMovements
}

// MaxMovements is the maximum number of movements that one call reads.
const MaxMovements = 1000

// MovementPage is one page of a Site's movements.
type MovementPage struct {
	Page[Movement, string]
	TotalAmount Amount // sum of all movements in the time range, in minor units
}
