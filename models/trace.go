package models

import (
	"context"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"

	"github.com/google/uuid"
)

// TraceID names one request and everything that it causes: 32 lowercase hex characters. It is in
// the answer, the logs, the spans, the stored rows and the tasks.
type TraceID string

// ErrInvalidTraceID says that a text is not a trace id.
var ErrInvalidTraceID = errors.New("models: not a trace id")

// traceIDLength is the number of characters of a trace id.
const traceIDLength = 32

// NewTraceID makes a fresh trace id. Its first half is the time and the sequence of a UUIDv7, as in
// the ids of what the request stores (see newIDFor). Its second half is random, as samplers of
// traces expect.
func NewTraceID() TraceID {
	b := uuid.Must(uuid.NewV7())
	b[tracePrefixLength] = byte(rand.Uint32()) //nolint:gosec // random, instead of the UUID's variant; keeps no secret
	return TraceID(hex.EncodeToString(b[:]))
}

// ParseTraceID reads a trace id in the form in which answers carry it; anything else is
// ErrInvalidTraceID.
func ParseTraceID(s string) (TraceID, error) {
	if len(s) != traceIDLength || strings.Trim(s, "0123456789abcdef") != "" {
		return "", ErrInvalidTraceID
	}
	return TraceID(s), nil
}

// tracePrefixLength is the number of bytes that a trace id shares with the ids of what its request
// stores.
const tracePrefixLength = 8

// tracePrefix is the first half of a trace id.
type tracePrefix [tracePrefixLength]byte

// prefix is the first half of a trace id that NewTraceID made; else ok is false, and nothing begins
// like it.
func (t TraceID) prefix() (prefix tracePrefix, ok bool) {
	if _, err := ParseTraceID(string(t)); err != nil {
		return prefix, false
	}
	_, err := hex.Decode(prefix[:], []byte(t[:2*tracePrefixLength]))
	const version = 7
	return prefix, err == nil && prefix[6]>>4 == version
}

// idsFrom are the lowest and the highest UUID that begin with the first n bytes of the prefix.
func (p tracePrefix) idsFrom(n int) (lowest, highest uuid.UUID) {
	highest = uuid.Max
	copy(lowest[:n], p[:n])
	copy(highest[:n], p[:n])
	return lowest, highest
}

// newIDFor makes an ID for what the request of a trace stores. It begins with the first half of the
// trace id, so that a primary key finds the row of a trace, and sorts as NewID's do. Without such a
// trace it is NewID.
func newIDFor[N Noun](trace TraceID) ID[N] {
	id := NewID[N]()
	if prefix, ok := trace.prefix(); ok {
		copy(id[:], prefix[:])
	}
	return id
}

type traceKey struct{}

// WithTraceID returns a context that carries the trace id of the work at hand.
func WithTraceID(ctx context.Context, id TraceID) context.Context {
	return context.WithValue(ctx, traceKey{}, id)
}

// TraceIDFrom is the trace id that the context carries, "" if none.
func TraceIDFrom(ctx context.Context) TraceID {
	id, _ := ctx.Value(traceKey{}).(TraceID)
	return id
}

// TraceKind names what a request stored.
type TraceKind string

// The kinds of traces, in the words of the wire.
const (
	TraceBatch         TraceKind = "batch"         // a submission or a retry
	TracePaymentIntent TraceKind = "paymentIntent" // its creation
	TraceInvitation    TraceKind = "invitation"    // its creation
	TraceTestEvent     TraceKind = "testEvent"     // the test of a webhook endpoint
)

// TraceKinds are all kinds.
var TraceKinds = []TraceKind{TraceBatch, TracePaymentIntent, TraceInvitation, TraceTestEvent}

// Trace is what a request stored, and what that led to.
type Trace struct {
	ID     TraceID
	Kind   TraceKind
	At     Millis             // when it was stored
	Batch  *Batch             // of TraceBatch, with exact counts
	Intent *PaymentIntent     // of TracePaymentIntent
	Link   *Link              // of TraceInvitation, in its effective state
	Rows   map[RowOutcome]int // of TraceBatch: settled rows by outcome
	// Attempts counts the debit calls made, of all rows of a batch, or for a payment intent.
	Attempts int
	Events   []WebhookEvent // oldest first, at most MaxTraceEvents, without bodies
}

// MaxTraceEvents is the most events that a Trace holds. A batch has no more: one for each row, and
// one for its end.
const MaxTraceEvents = MaxBatchRows + 1
