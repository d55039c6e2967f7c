// Package logs holds the log handler of every process. The handler adds the trace id and the
// attributes of the context to each record, and limits the number of records about an outage.
package logs

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"partnerbilling/models"
)

// The names of the attributes with ids in log records.
const (
	TraceID        = "traceId"
	OrganisationID = "organisationId"
	SiteID         = "siteId"
	ClientID       = "clientId"
	TaskID         = "taskId"
	BatchID        = "batchId"
	EventID        = "eventId"
	IntentID       = "paymentIntentId"
	TransactionID  = "transactionId"
)

// outageInterval is the minimum time between two records about the outage of one dependency.
const outageInterval = time.Second

// attrsKey is the context key of the attributes of With.
type attrsKey struct{}

// With returns a copy of ctx that adds attrs to log records, after the attributes already in ctx.
func With(ctx context.Context, attrs ...slog.Attr) context.Context {
	if outer := attrsOf(ctx); len(outer) > 0 {
		attrs = append(outer[:len(outer):len(outer)], attrs...)
	}
	return context.WithValue(ctx, attrsKey{}, attrs)
}

func attrsOf(ctx context.Context) []slog.Attr {
	attrs, _ := ctx.Value(attrsKey{}).([]slog.Attr)
	return attrs
}

// NewHandler returns a handler that passes records to next. It adds the context's trace id and the
// attributes of With. Of the records at level Warn or above with an attribute of Outage, it passes
// one a second for each dependency. The attribute "suppressed" of the next one is the number of
// records dropped before it. now measures the seconds.
func NewHandler(next slog.Handler, now func() time.Time) slog.Handler {
	return handler{next, &outages{now: now, seen: map[string]*outage{}}}
}

// handler is the handler that NewHandler returns.
type handler struct {
	slog.Handler
	outages *outages
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone() // others may share it
	if dependency := dependencyOf(r); dependency != "" {
		suppressed, ok := h.outages.admit(dependency)
		if !ok {
			return nil
		}
		if suppressed > 0 {
			r.AddAttrs(slog.Int("suppressed", suppressed))
		}
	}
	if id := models.TraceIDFrom(ctx); id != "" {
		r.AddAttrs(slog.String(TraceID, string(id)))
	}
	r.AddAttrs(attrsOf(ctx)...)
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.outages}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.outages}
}

// dependencyOf returns the dependency whose outage a record is about. It returns "" for other
// records and for records below level Warn.
func dependencyOf(r slog.Record) (dependency string) {
	if r.Level < slog.LevelWarn {
		return ""
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == outageKey {
			dependency = a.Value.String()
		}
		return dependency == ""
	})
	return dependency
}

// outages limits and counts the records about outages. It is safe for concurrent use.
type outages struct {
	now  func() time.Time
	mu   sync.Mutex
	seen map[string]*outage // by dependency
}

// outage is the state of the records about one dependency.
type outage struct {
	last       time.Time // of the last record that was passed on
	suppressed int       // records dropped since
}

// admit reports whether a record about an outage may pass, and how many records were dropped since
// the last one that did.
func (o *outages) admit(dependency string) (suppressed int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, seen := o.now(), o.seen[dependency]
	if seen == nil {
		o.seen[dependency] = &outage{last: now}
		return 0, true
	}
	if now.Sub(seen.last) < outageInterval {
		seen.suppressed++
		return 0, false
	}
	suppressed, seen.suppressed, seen.last = seen.suppressed, 0, now
	return suppressed, true
}
