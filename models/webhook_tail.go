package models

import (
	"context"
	_ "embed" // statements
	"strconv"
	"strings"
	"time"

	"partnerbilling/models/postgres"
)

const (
	// WebhookResumeWithin is how far back a stream of events can resume.
	WebhookResumeWithin = 24 * time.Hour
	// webhookTailPage is the maximum number of events that one read of a WebhookTail returns.
	webhookTailPage = 100
	// webhookTailBytes is the total size of bodies at which a page ends, so that a slow client
	// keeps little in memory.
	webhookTailBytes = 128 << 10
)

// WebhookStreamPosition is a position in a stream of an organisation's events. A stream follows the
// order of the database transactions that requested delivery, by creation or redelivery. Within a
// transaction it follows the order of ids. An event appears only when every earlier transaction has
// ended, so that no event appears behind a position that a stream has passed.
type WebhookStreamPosition struct {
	Transaction uint64 // xid8 of the transaction that requested delivery
	ID          WebhookEventID
}

// String returns the position as the id of a server-sent event.
func (p WebhookStreamPosition) String() string {
	return p.ID.String() + ":" + strconv.FormatUint(p.Transaction, 10)
}

// ParseWebhookStreamPosition parses the form that String writes; anything else is ErrInvalidID.
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

// WebhookTail follows an organisation's events as they are created or redelivered. It is for one
// goroutine.
type WebhookTail struct {
	store        *Store
	organisation OrganisationID
	at           WebhookStreamPosition
	before       string // a pg_snapshot; the stream leaves out the events that are visible in it
}

// nothingBefore is a pg_snapshot in which no transaction has ended.
const nothingBefore = "1:1:"

var (
	//go:embed webhook_tail.sql
	tailWebhooksText string
	tailWebhooksSQL  = postgres.SQL(tailWebhooksText)

	lastWebhookSQL = postgres.SQL(`
SELECT w.requested_in::text AS transaction, w.id FROM webhook_events w
WHERE w.organisation_id = :organisation AND w.requested_in < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY w.requested_in DESC, w.id DESC LIMIT 1`)

	tailStartSQL = postgres.SQL(`SELECT s::text, pg_snapshot_xmin(s)::text FROM pg_current_snapshot() AS s`)
)

// TailWebhooks follows the organisation's events after a position, or from now on if after is nil.
func (s *Store) TailWebhooks(
	ctx context.Context, organisation OrganisationID, after *WebhookStreamPosition,
) (*WebhookTail, error) {
	t := &WebhookTail{store: s, organisation: organisation, before: nothingBefore}
	if after != nil {
		t.at = *after
		return t, nil
	}
	err := s.pg.Get(ctx, tailStartSQL, nil, &t.before, &t.at.Transaction)
	return t, wrap("tail webhooks", err)
}

// LastWebhook returns the position of the organisation's last event, or the zero position if there
// is none. The position changes whenever the organisation's streams have a new event to read.
func (s *Store) LastWebhook(ctx context.Context, organisation OrganisationID) (WebhookStreamPosition, error) {
	var last []struct {
		Transaction uint64
		ID          WebhookEventID
	}
	err := s.pg.Select(ctx, lastWebhookSQL, postgres.Args{"organisation": organisation}, &last)
	if err != nil || len(last) == 0 {
		return WebhookStreamPosition{}, wrap("last webhook", err)
	}
	return WebhookStreamPosition(last[0]), nil
}

// Position returns the position of the last event that Next has returned; before, the position at
// which the stream began.
func (t *WebhookTail) Position() WebhookStreamPosition { return t.at }

// WebhookStreamed is an event and its position in a stream.
type WebhookStreamed struct {
	WebhookEvent
	Position WebhookStreamPosition
}

// Next reads the next events, in the stream's order; none if there are no new ones. It sets only
// OrganisationID, ID, Type, Test, Attempts and Body of each. more says that the next call may
// return more events at once.
func (t *WebhookTail) Next(ctx context.Context) (events []WebhookStreamed, more bool, err error) {
	var rows []struct {
		WebhookEvent
		Transaction uint64
		Found       int // number of events found, before the page is cut to webhookTailBytes
	}
	err = t.store.pg.Select(ctx, tailWebhooksSQL, postgres.Args{
		"organisation": t.organisation, "transaction": strconv.FormatUint(t.at.Transaction, 10), "event": t.at.ID,
		"before": t.before, "resume_within": WebhookResumeWithin.Milliseconds(), "limit": webhookTailPage,
		"bytes": webhookTailBytes,
	}, &rows)
	if err != nil {
		return nil, false, wrap("tail webhooks", err)
	}
	for _, r := range rows {
		t.at = WebhookStreamPosition{Transaction: r.Transaction, ID: r.ID}
		events = append(events, WebhookStreamed{r.WebhookEvent, t.at})
		more = r.Found == webhookTailPage || r.Found > len(rows)
	}
	return events, more, nil
}
