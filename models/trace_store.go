package models

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // statements
	"fmt"
	"slices"

	"github.com/google/uuid"

	"partnerbilling/models/postgres"
)

var (
	//go:embed trace_find.sql
	findTraceText string
	findTraceSQL  = postgres.SQL(findTraceText)

	tracedBatchSQL = postgres.SQL(`
SELECT ` + batchColumns + `, svc_now() AS now FROM batches b
WHERE b.site_id = :site AND b.id = :id AND b.submitted_at > svc_now() - :retention`)
	tracedRowsSQL = postgres.SQL(`
SELECT r.state, r.outcome, count(*) AS rows, sum(` + shownAttempts(":may_begin::boolean") + `)::bigint AS attempts
FROM batch_rows r WHERE r.site_id = :site AND r.batch_id = :batch GROUP BY r.state, r.outcome`)
	tracedIntentSQL = postgres.SQL(`
SELECT ` + intentColumns + `, p.state = 'created' AND p.expires_at <= svc_now() AS overdue, p.attempts
FROM payment_intents p WHERE p.site_id = :site AND p.id = :id`)
)

// traceSubject locates the row that the traced request stored.
type traceSubject struct {
	Kind   TraceKind
	SiteID SiteID
	ID     uuid.UUID
}

// Trace returns the row that a request of the organisation stored, and its consequences, from one
// snapshot. If the row is an overdue batch or payment intent, Trace ends it first, as other reads
// do. ErrNotFound: the request stored nothing that still exists, or the organisation made no such
// request.
func (s *Store) Trace(ctx context.Context, organisation OrganisationID, id TraceID) (Trace, error) {
	prefix, ok := id.prefix()
	if !ok {
		return Trace{}, wrap("trace", notFoundError("trace"))
	}
	const tries = 3 // a subject may become overdue between two reads
	var trace Trace
	for range tries {
		subject, over, err := s.readTrace(ctx, &trace, organisation, id, prefix)
		if err == nil && over {
			err = s.endSubject(ctx, subject)
		}
		if err != nil {
			return Trace{}, wrap("trace", err)
		}
		if !over {
			break
		}
	}
	return trace, nil
}

// readTrace reads a trace in one snapshot. It reports whether the subject is overdue.
func (s *Store) readTrace(
	ctx context.Context, trace *Trace, organisation OrganisationID, id TraceID, prefix tracePrefix,
) (subject traceSubject, over bool, err error) {
	err = s.pg.InSnapshot(ctx, func(tx postgres.Tx) error {
		if subject, err = findTrace(ctx, tx, organisation, id, prefix); err != nil {
			return err
		}
		*trace = Trace{ID: id, Kind: subject.Kind}
		if over, err = trace.readSubject(ctx, tx, subject); err != nil {
			return err
		}
		return trace.readEvents(ctx, tx, organisation, prefix)
	})
	return subject, over, err
}

// findTrace locates the row of a trace; ErrNotFound if there is none.
func findTrace(
	ctx context.Context, tx postgres.Tx, organisation OrganisationID, id TraceID, prefix tracePrefix,
) (found traceSubject, err error) {
	err = tx.Get(ctx, findTraceSQL, findTraceArgs(organisation, id, prefix), &found)
	return found, notFound(err, "trace")
}

func findTraceArgs(organisation OrganisationID, id TraceID, prefix tracePrefix) postgres.Args {
	args := traceArgs(id, prefix)
	args["organisation"] = organisation
	return args
}

// traceArgs returns the trace id, and the range of ids that the row of the trace is in.
func traceArgs(id TraceID, prefix tracePrefix) postgres.Args {
	lowest, highest := prefix.idsFrom(tracePrefixLength)
	return postgres.Args{"trace": string(id), "lowest": lowest.String(), "highest": highest.String()}
}

// readSubject reads the subject, and reports whether it is overdue.
func (t *Trace) readSubject(ctx context.Context, tx postgres.Tx, subject traceSubject) (over bool, err error) {
	switch subject.Kind {
	case TraceBatch:
		return t.readBatch(ctx, tx, subject.SiteID, BatchID(subject.ID))
	case TracePaymentIntent:
		return t.readIntent(ctx, tx, subject.SiteID, PaymentIntentID(subject.ID))
	case TraceInvitation:
		link, err := linkByID(ctx, tx, subject.SiteID, LinkID(subject.ID))
		t.Link, t.At = &link, link.InvitedAt
		return false, err
	case TraceTestEvent: // which readEvents finds
	}
	return false, nil
}

// readBatch reads the batch of a trace, and counts its rows. It reports whether the batch is past
// its deadline and not settled.
func (t *Trace) readBatch(ctx context.Context, tx postgres.Tx, site SiteID, id BatchID) (over bool, err error) {
	var found struct {
		storedBatch
		Now Millis
	}
	err = tx.Get(ctx, tracedBatchSQL, postgres.Args{
		"site": site, "id": id, "retention": BatchRetention.Milliseconds(),
	}, &found)
	if err != nil {
		return false, notFound(err, "batch of a trace")
	}
	batch, now := found.batch(), found.Now
	t.Batch, t.At = &batch, batch.SubmittedAt
	var groups []struct {
		State          RowState
		Outcome        RowOutcome
		Rows, Attempts int
	}
	err = tx.Select(ctx, tracedRowsSQL, postgres.Args{
		"site": site, "batch": id, "may_begin": now < batch.SettleBy.Add(-LastAttemptBefore),
	}, &groups)
	t.Rows = map[RowOutcome]int{}
	for _, g := range groups {
		t.Attempts += g.Attempts
		switch g.State {
		case RowSettled:
			t.Rows[g.Outcome] = g.Rows
		case RowInProgress:
			t.Batch.Counts.Pending -= g.Rows
			t.Batch.Counts.InProgress += g.Rows
		case RowPending: // as storedBatch counts them
		}
	}
	return batch.overdue(now), err
}

// readIntent reads the payment intent of a trace. It reports whether the intent is past its expiry
// and not ended.
func (t *Trace) readIntent(
	ctx context.Context, tx postgres.Tx, site SiteID, id PaymentIntentID,
) (over bool, err error) {
	var found struct {
		foundIntent
		Attempts int
	}
	err = tx.Get(ctx, tracedIntentSQL, postgres.Args{"site": site, "id": id}, &found)
	t.Intent, t.At, t.Attempts = &found.PaymentIntent, found.CreatedAt, found.Attempts
	return found.Overdue, notFound(err, "payment intent of a trace")
}

// traceEventsSQL reads the events of a trace. An event's id begins with the time of its subject's
// id, and so lies between :lowest and :highest.
var traceEventsSQL = postgres.SQL(`
SELECT ` + webhookColumns + ` FROM webhook_events w
WHERE w.organisation_id = :organisation AND w.id BETWEEN :lowest AND :highest AND w.trace_id = :trace
ORDER BY w.id LIMIT :limit`)

func traceEventsArgs(organisation OrganisationID, id TraceID, prefix tracePrefix) postgres.Args {
	lowest, highest := prefix.idsFrom(eventTimeLength)
	return postgres.Args{
		"organisation": organisation, "lowest": lowest.String(), "highest": highest.String(), "trace": string(id),
		"limit": MaxTraceEvents,
	}
}

// readEvents reads the webhook events of a trace, oldest first.
func (t *Trace) readEvents(ctx context.Context, tx postgres.Tx, organisation OrganisationID, prefix tracePrefix) error {
	err := tx.Select(ctx, traceEventsSQL, traceEventsArgs(organisation, t.ID, prefix), &t.Events)
	slices.SortFunc(t.Events, func(a, b WebhookEvent) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	if t.Kind == TraceTestEvent && len(t.Events) > 0 {
		t.At = t.Events[0].CreatedAt
	}
	return err
}

// endSubject records the end of an overdue subject.
func (s *Store) endSubject(ctx context.Context, subject traceSubject) error {
	switch subject.Kind {
	case TraceBatch:
		return s.closeIfOverdue(ctx, subject.SiteID, BatchID(subject.ID))
	case TracePaymentIntent:
		_, err := s.expireIntent(ctx, subject.SiteID, PaymentIntentID(subject.ID))
		return err
	case TraceInvitation, TraceTestEvent: // are read in their effective state
	}
	return fmt.Errorf("models: a trace's %s is never overdue", subject.Kind)
}
