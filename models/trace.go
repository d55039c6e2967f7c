package models

import (
	"context"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"

	"github.com/google/uuid"
)

// TraceID identifies one request and everything that it causes: 32 lowercase hex characters. It
// appears in answers, logs, spans, stored rows and tasks.
type TraceID string

// ErrInvalidTraceID says that a text is not a trace id.
var ErrInvalidTraceID = errors.New("models: not a trace id")

// traceIDLength is the number of characters of a trace id.
const traceIDLength = 32

// NewTraceID returns a new trace id. Its first half is the time and sequence of a UUIDv7, as in the
// ids of stored rows (see newIDFor). Its second half is random, as trace samplers expect.
func NewTraceID() TraceID {
	b := uuid.Must(uuid.NewV7())
	b[tracePrefixLength] = byte(rand.Uint32()) //nolint:gosec // random, instead of the UUID's variant; keeps no secret
	return TraceID(hex.EncodeToString(b[:]))
}

// ParseTraceID parses a trace id in its wire form; anything else is ErrInvalidTraceID.
func ParseTraceID(s string) (TraceID, error) {
	if len(s) != traceIDLength || strings.Trim(s, "0123456789abcdef") != "" {
		return "", ErrInvalidTraceID
	}
	return TraceID(s), nil
}

// tracePrefixLength is the number of bytes that a trace id shares with the ids of the rows of its
// request.
const tracePrefixLength = 8

// tracePrefix is the first half of a trace id.
type tracePrefix [tracePrefixLength]byte

// prefix returns the first half of a trace id that NewTraceID made. For other ids ok is false: no
// row shares their prefix.
func (t TraceID) prefix() (prefix tracePrefix, ok bool) {
	if _, err := ParseTraceID(string(t)); err != nil {
		return prefix, false
	}
	_, err := hex.Decode(prefix[:], []byte(t[:2*tracePrefixLength]))
	const version = 7
	return prefix, err == nil && prefix[6]>>4 == version
}

// idsFrom returns the lowest and the highest UUID with the first n bytes of the prefix.
func (p tracePrefix) idsFrom(n int) (lowest, highest uuid.UUID) {
	highest = uuid.Max
	copy(lowest[:n], p[:n])
	copy(highest[:n], p[:n])
	return lowest, highest
}

// newIDFor makes an ID for the row that the request of a trace stores. The ID begins with the first
// half of the trace id, so that a primary key finds the row of a trace. Such IDs sort by time, as
// those of NewID do. If NewTraceID did not make the trace id, newIDFor is NewID.
func newIDFor[N Noun](trace TraceID) ID[N] {
	id := NewID[N]()
	if prefix, ok := trace.prefix(); ok {
		copy(id[:], prefix[:])
	}
	return id
}

type traceKey struct{}

// WithTraceID returns a context that carries the trace id of the current work.
func WithTraceID(ctx context.Context, id TraceID) context.Context {
	return context.WithValue(ctx, traceKey{}, id)
}

// TraceIDFrom returns the context's trace id; "" if there is none.
func TraceIDFrom(ctx context.Context) TraceID {
	id, _ := ctx.Value(traceKey{}).(TraceID)
	return id
}

// TraceKind is the kind of thing that a request stored.
type TraceKind string

// The kinds of traces, as on the wire.
const (
	TraceBatch         TraceKind = "batch"         // a submission or a retry
	TracePaymentIntent TraceKind = "paymentIntent" // its creation
	TraceInvitation    TraceKind = "invitation"    // its creation
	TraceTestEvent     TraceKind = "testEvent"     // the test of a webhook endpoint
)

// Trace is the row that a request stored, and its consequences.
type Trace struct {
	ID     TraceID
	Kind   TraceKind
	At     Millis             // when it was stored
	Batch  *Batch             // of TraceBatch, with exact counts; else nil
	Intent *PaymentIntent     // of TracePaymentIntent; else nil
	Link   *CustomerLink      // of TraceInvitation, in its effective state; else nil
	Rows   map[RowOutcome]int // of TraceBatch: numbers of settled rows by outcome
	// Attempts is the number of debit calls made, for all rows of a batch or for a payment intent.
	Attempts int
	Events   []WebhookEvent // oldest first, at most MaxTraceEvents, without bodies
}

// MaxTraceEvents is the maximum number of events in a Trace: a batch can have one for each row, and
// one for its end.
const MaxTraceEvents = MaxBatchRows + 1
