package models

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // statements
	"errors"
	"slices"

	"partnerbilling/models/postgres"

	"github.com/google/uuid"
)

//go:embed trace_find.sql
var findTraceSQL string

// traceSubject locates the row that the traced request stored.
type traceSubject struct {
	kind TraceKind
	site SiteID
	id   uuid.UUID
}

// Trace returns what a request of the organisation stored, and the consequences, from one snapshot.
// It ends overdue subjects first, as other reads do. ErrNotFound: the request stored nothing that
// still exists, or the organisation made no such request.
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
		*trace = Trace{ID: id, Kind: subject.kind}
		if over, err = trace.readSubject(ctx, tx, subject); err != nil {
			return err
		}
		return trace.readEvents(ctx, tx, organisation, prefix)
	})
	return subject, over, err
}

func findTrace(
	ctx context.Context, tx postgres.Tx, organisation OrganisationID, id TraceID, prefix tracePrefix,
) (found traceSubject, err error) {
	lowest, highest := prefix.idsFrom(tracePrefixLength)
	err = tx.Tx.Tx.QueryRowContext(ctx, findTraceSQL, organisation, string(id), lowest.String(), highest.String()).
		Scan(&found.kind, &found.site, &found.id)
	return found, notFound(err, "trace")
}

// ExplainFindTrace executes the searching statements of Trace under EXPLAIN (ANALYZE, BUFFERS) and
// returns the plan as JSON.
func (s *Store) ExplainFindTrace(
	ctx context.Context, organisation OrganisationID, id TraceID,
) (plans [][]byte, err error) {
	prefix, _ := id.prefix()
	lowest, highest := prefix.idsFrom(tracePrefixLength)
	first, last := prefix.idsFrom(eventTimeLength)
	for query, args := range map[string][]any{
		findTraceSQL:   {organisation, string(id), lowest.String(), highest.String()},
		traceEventsSQL: {organisation, first.String(), last.String(), string(id), MaxTraceEvents},
	} {
		err = s.pg.Do(ctx, func() error {
			var plan []byte
			defer func() { plans = append(plans, plan) }()
			return s.db.DB.QueryRowContext(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+query, args...).Scan(&plan)
		})
		if err != nil {
			return nil, wrap("explain trace", err)
		}
	}
	return plans, nil
}

// readSubject reads the subject, and reports whether it is overdue.
func (t *Trace) readSubject(ctx context.Context, tx postgres.Tx, subject traceSubject) (over bool, err error) {
	switch subject.kind {
	case TraceBatch:
		return t.readBatch(ctx, tx, subject.site, BatchID(subject.id))
	case TracePaymentIntent:
		return t.readIntent(ctx, tx, subject.site, PaymentIntentID(subject.id))
	case TraceInvitation:
		link, err := linkByID(ctx, tx, subject.site, LinkID(subject.id))
		t.Link, t.At = &link, link.InvitedAt
		return false, err
	case TraceTestEvent: // which readEvents finds
	}
	return false, nil
}

func (t *Trace) readBatch(ctx context.Context, tx postgres.Tx, site SiteID, id BatchID) (over bool, err error) {
	var now Millis
	batch, err := scanBatch(tx.Tx.Tx.QueryRowContext(ctx, `
SELECT `+batchColumns+`, svc_now() FROM batches b
WHERE b.site_id = $1 AND b.id = $2 AND b.submitted_at > svc_now() - $3`, site, id, BatchRetention.Milliseconds()), &now)
	if err != nil {
		return false, notFound(err, "batch of a trace")
	}
	t.Batch, t.At = &batch, batch.SubmittedAt
	rows, err := tx.Tx.Tx.QueryContext(ctx, `
SELECT r.state, coalesce(r.outcome::text, ''), count(*), sum(`+shownAttempts("$3")+`)::bigint
FROM batch_rows r WHERE r.site_id = $1 AND r.batch_id = $2 GROUP BY r.state, r.outcome`,
		site, id, now < batch.SettleBy.Add(-LastAttemptBefore))
	if err != nil {
		return false, err
	}
	type group struct {
		state    RowState
		outcome  RowOutcome
		rows     int
		attempts int
	}
	groups, err := scanAll(rows, func(g *group) []any { return []any{&g.state, &g.outcome, &g.rows, &g.attempts} })
	t.Rows = map[RowOutcome]int{}
	for _, g := range groups {
		t.Attempts += g.attempts
		switch g.state {
		case RowSettled:
			t.Rows[g.outcome] = g.rows
		case RowInProgress:
			t.Batch.Counts.Pending -= g.rows
			t.Batch.Counts.InProgress += g.rows
		case RowPending: // as batchFields counts them
		}
	}
	return batch.overdue(now), err
}

func (t *Trace) readIntent(ctx context.Context, tx postgres.Tx, site SiteID, id PaymentIntentID) (over bool, err error) {
	intent, err := scanIntent(tx.Tx.Tx.QueryRowContext(ctx, `
SELECT `+intentColumns+`, p.state = 'created' AND p.expires_at <= svc_now(), p.attempts
FROM payment_intents p WHERE p.site_id = $1 AND p.id = $2`, site, id), &over, &t.Attempts)
	t.Intent, t.At = &intent, intent.CreatedAt
	return over, notFound(err, "payment intent of a trace")
}

// traceEventsSQL reads the events of a trace. An event's id has the time of its subject's.
//
//	$1 organisation  $2 lowest and $3 highest id with that time  $4 trace id  $5 most
const traceEventsSQL = `
SELECT ` + webhookColumns + ` FROM webhook_events w
WHERE w.organisation_id = $1 AND w.id BETWEEN $2 AND $3 AND w.trace_id = $4
ORDER BY w.id LIMIT $5`

func (t *Trace) readEvents(ctx context.Context, tx postgres.Tx, organisation OrganisationID, prefix tracePrefix) error {
	lowest, highest := prefix.idsFrom(eventTimeLength)
	rows, err := tx.Tx.Tx.QueryContext(ctx, traceEventsSQL,
		organisation, lowest.String(), highest.String(), string(t.ID), MaxTraceEvents)
	if err != nil {
		return err
	}
	t.Events, err = scanAll(rows, (*WebhookEvent).columns)
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
	switch subject.kind {
	case TraceBatch:
		return s.closeIfOverdue(ctx, subject.site, BatchID(subject.id))
	case TracePaymentIntent:
		_, err := s.expireIntent(ctx, subject.site, PaymentIntentID(subject.id))
		return err
	case TraceInvitation, TraceTestEvent: // are read in their effective state
	}
	return errors.New("models: nothing of this trace can be over")
}
