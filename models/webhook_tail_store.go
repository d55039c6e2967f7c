package models

import (
	"context"
	_ "embed" // statements
	"strconv"
	"strings"
	"time"
)

const (
	// WebhookResumeWithin is how far back a stream of events can be resumed.
	WebhookResumeWithin = 24 * time.Hour
	// webhookTailPage is how many events one look of a WebhookTail brings at most.
	webhookTailPage = 100
)

// WebhookStreamPosition is where a stream of an organisation's events is. Streams follow the order of the transactions
// that asked for delivery, by creation or redelivery, and within one that of ids. An event shows once no transaction
// before its own is under way, so that none can come to lie before a position that a stream has passed.
type WebhookStreamPosition struct {
	Transaction uint64 // xid8
	ID          WebhookEventID
}

// String is the position as an id of server-sent events.
func (p WebhookStreamPosition) String() string {
	return p.ID.String() + ":" + strconv.FormatUint(p.Transaction, 10)
}

// ParseWebhookStreamPosition reads a position as String writes it; anything else is ErrInvalidID.
func ParseWebhookStreamPosition(text string) (p WebhookStreamPosition, err error) {
	id, transaction, _ := strings.Cut(text, ":")
	p.Transaction, err = strconv.ParseUint(transaction, 10, 64)
	if err == nil {
		err = p.ID.UnmarshalText([]byte(id))
	}
	if err != nil || p.String() != text {
		return WebhookStreamPosition{}, ErrInvalidID
	}
	return p, nil
}

// WebhookTail follows an organisation's events as they are created or redelivered. It is for one goroutine.
type WebhookTail struct {
	store        *Store
	organisation OrganisationID
	at           WebhookStreamPosition
	before       string // pg_snapshot: what it shows was there before the stream began
}

// nothingBefore is a pg_snapshot that shows nothing.
const nothingBefore = "1:1:"

// TailWebhooks begins to follow the organisation's events, from a position, or from now on if after is nil.
func (s *Store) TailWebhooks(
	ctx context.Context, organisation OrganisationID, after *WebhookStreamPosition,
) (*WebhookTail, error) {
	t := &WebhookTail{store: s, organisation: organisation, before: nothingBefore}
	if after != nil {
		t.at = *after
		return t, nil
	}
	err := s.statement(ctx, func() error {
		var oldest string
		err := s.db.DB.QueryRowContext(ctx, `
SELECT s::text, pg_snapshot_xmin(s)::text FROM pg_current_snapshot() AS s`).Scan(&t.before, &oldest)
		if err == nil {
			t.at.Transaction, err = strconv.ParseUint(oldest, 10, 64)
		}
		return err
	})
	return t, wrap("tail webhooks", err)
}

// Position is where the tail is: behind the last event that Next has brought.
func (t *WebhookTail) Position() WebhookStreamPosition { return t.at }

// WebhookStreamed is an event at its position in a stream.
type WebhookStreamed struct {
	WebhookEvent
	Position WebhookStreamPosition
}

//go:embed webhook_tail.sql
var tailWebhooksSQL string

// Next reads what has come since, in the stream's order, with bodies. more says that there may be more at once.
func (t *WebhookTail) Next(ctx context.Context) (events []WebhookStreamed, more bool, err error) {
	err = t.store.statement(ctx, func() error {
		rows, err := t.store.db.DB.QueryContext(ctx, tailWebhooksSQL, t.organisation, strconv.FormatUint(t.at.Transaction, 10),
			t.at.ID, t.before, WebhookResumeWithin.Milliseconds(), webhookTailPage)
		if err != nil {
			return err
		}
		events, err = scanAll(rows, func(e *WebhookStreamed) []any {
			return []any{&e.Position.Transaction, &e.ID, &e.Type, &e.Test, &e.Attempts, &e.Body}
		})
		return err
	})
	if err != nil {
		return nil, false, wrap("tail webhooks", err)
	}
	for i := range events {
		e := &events[i]
		e.OrganisationID, e.Position.ID = t.organisation, e.ID
		t.at = e.Position
	}
	return events, len(events) == webhookTailPage, nil
}
