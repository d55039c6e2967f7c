package models

import (
	"context"
	"crypto/rand"
	"encoding/hex"
)

// TraceID names one request and everything that it causes: 32 lowercase hex characters. It is in the answer,
// the logs, the spans, the stored rows and the tasks.
type TraceID string

// NewTraceID makes a fresh trace id from 16 random bytes.
func NewTraceID() TraceID {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return TraceID(hex.EncodeToString(b[:]))
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
