package models

import (
	"crypto/sha256"

	"github.com/google/uuid"
)

// Movement is an entry of the ledger as a partner sees it: money of a Site that was moved, by a row of a batch or by a
// payment. Movements are only added; what is learnt late is a movement at the time at which it was recorded.
type Movement struct {
	RailKey           string // unique for ever; never shown to a partner
	RecordedAt        Millis
	Amount            Amount
	Currency          string          // ISO 4217
	BatchReference    string          // "" for a payment
	RowReference      string          // "" for a payment
	CustomerReference string          // "" for a payment
	PaymentIntentID   PaymentIntentID // zero for a row
	OrderID           string          // "" for none
}

// ID is the movement's name for partners. It derives from what is stored, so that it is the same whenever it is read: a
// UUIDv7 with the time of the movement, and a hash of the rail key in place of randomness.
func (m *Movement) ID() MovementID {
	const version, variant = 0x70, 0x80
	hash := sha256.Sum256([]byte(m.RailKey))
	id := uuid.UUID(hash[:16])
	for i := range 6 {
		id[i] = byte(m.RecordedAt >> (40 - 8*i)) //nolint:gosec // the byte at that place
	}
	id[6], id[8] = version|id[6]&0x0f, variant|id[8]&0x3f
	return MovementID(id)
}

// MovementPosition is a movement's place in the list. A page holds the movements beyond it, never the movement itself. The
// zero position is the beginning of the list going forward, and its end going backward.
type MovementPosition struct {
	RecordedAt Millis
	RailKey    string
}

func (m *Movement) position() MovementPosition { return MovementPosition{m.RecordedAt, m.RailKey} }

// MovementQuery asks for one page of a Site's movements, ordered by RecordedAt and then RailKey, newest first.
type MovementQuery struct {
	SiteID    SiteID
	From      *Millis // inclusive; nil: no bound
	To        *Millis // inclusive; nil: no bound
	Direction Direction
	At        MovementPosition
	Limit     int // movements at most, 1 to MaxMovements
}

// MaxMovements is the most movements that are read at once.
const MaxMovements = 1000

// MovementPage is one page, and what was true of the whole range at that moment.
type MovementPage struct {
	Movements   []Movement // newest first
	Total       int64      // movements of the range
	TotalAmount Amount     // of them together
	Next        *MovementPosition
	Prev        *MovementPosition
	Now         Millis // service time of that moment
}
