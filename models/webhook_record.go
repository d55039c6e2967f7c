package models

import (
	"context"
	_ "embed" // statements
	"time"

	"partnerbilling/models/postgres"
)

// WebhookVerdict is the consequence of an attempt for its event.
type WebhookVerdict struct {
	Status     WebhookStatus // delivered, failed, or pending for another attempt
	Gone       bool          // the answer was 410
	Retry      time.Duration // from the record to the next attempt, if pending
	Redispatch bool          // the dispatcher must send the task again: its run was interrupted
}

// WebhookRecord is an attempt to record, and its consequence for the event.
type WebhookRecord struct {
	Delivery WebhookDelivery
	Attempt  WebhookAttempt
	Verdict  WebhookVerdict
}

func (r *WebhookRecord) success() bool { return r.Verdict.Status == WebhookDelivered }

// RecordWebhooks records attempts and their consequences for events, endpoints and tasks. If the
// worker of an attempt has lost its lease, the attempt is still logged, and a success still counts.
// A failure then counts for the endpoint's breaker alone: the event stays with its current worker,
// or with the redelivery requested meanwhile.
//
// RecordWebhooks releases the parked events that the endpoints now have capacity for, and makes
// their tasks due. Each transaction claims at most claims of these tasks for WebhookLease. They are
// returned as claimed, and the caller runs them without a dispatch. None is claimed while the queue
// is paused. The other tasks are returned as due, and may be dispatched.
//
// The first records of all events are one transaction. Further records of an event follow in
// further transactions. After an error, some records may be stored; the call may be repeated.
func (s *Store) RecordWebhooks(
	ctx context.Context, records []*WebhookRecord, claims int,
) (claimed []Task, due []TaskID, err error) {
	for len(records) > 0 {
		var tasks []Task
		var others []TaskID
		first, repeated := oneOfEachEvent(records)
		err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
			r := webhookRecords{tx: tx, records: first}
			released, err := r.run(ctx)
			if err != nil {
				return err
			}
			tasks, others, err = claimDueTasks(ctx, tx, released, claims)
			return err
		})
		if err != nil {
			return claimed, due, wrap("record webhooks", err)
		}
		claimed, due, records = append(claimed, tasks...), append(due, others...), repeated
	}
	return claimed, due, nil
}

// oneOfEachEvent separates the first record of each event from the others. An event may have two
// records if its first worker has lost the lease.
func oneOfEachEvent(records []*WebhookRecord) (first, others []*WebhookRecord) {
	type key struct {
		organisation OrganisationID
		event        WebhookEventID
	}
	seen := make(map[key]bool, len(records))
	for _, r := range records {
		k := key{r.Delivery.Event.OrganisationID, r.Delivery.Event.ID}
		if seen[k] {
			others = append(others, r)
		} else {
			first = append(first, r)
		}
		seen[k] = true
	}
	return first, others
}

// webhookRecords are the records of one transaction, each of another event.
type webhookRecords struct {
	tx      postgres.Tx
	records []*WebhookRecord

	written []recordedEvent      // in any order
	moved   map[endpointKey]bool // the endpoints with changed breakers
}

// recordedEvent is a row of recordWebhooksSQL.
type recordedEvent struct {
	I            int    // index of the record, from 1
	Decided      bool   // the verdict became the event's status
	NewTask      TaskID // the task of a redelivery requested meanwhile, else zero
	Redelivered  bool   // the event has been redelivered: an alert about it may be open
	MovesBreaker bool   // the attempt changes the breaker of its endpoint
	Parked       bool   // the endpoint has parked events
}

// run writes the records, releases events that now have capacity, and returns their tasks. It locks
// the events first, then their slots, then endpoints, and then tasks. It skips parked slots that
// are locked, so that it waits for no slot of another event.
func (r *webhookRecords) run(ctx context.Context) ([]TaskID, error) {
	for _, step := range []func(context.Context) error{r.writeEvents, r.writeBreakers, r.writeTasks, r.writeAlerts} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	candidates := distinct(r.written, func(w recordedEvent) (endpointKey, bool) {
		k := r.of(w).Delivery.endpoint()
		return k, w.Parked || r.moved[k]
	})
	if len(candidates) == 0 {
		return nil, nil
	}
	return releaseSlots(ctx, r.tx, candidates)
}

// of returns the record that a row belongs to.
func (r *webhookRecords) of(w recordedEvent) *WebhookRecord { return r.records[w.I-1] }

var (
	//go:embed webhook_record.sql
	recordWebhooksText string
	recordWebhooksSQL  = postgres.SQL(recordWebhooksText)
)

// writeEvents logs the attempts, frees the slots of their events, and sets the statuses of the
// events from the verdicts. It leaves events that another worker or a redelivery has taken over.
func (r *webhookRecords) writeEvents(ctx context.Context) error {
	n := len(r.records)
	organisations, events, leases := make([]OrganisationID, n), make([]WebhookEventID, n), make([]LeaseToken, n)
	rounds, numbers, verdicts := make([]int, n), make([]int, n), make([]string, n)
	retries, endpoints, started := make([]int64, n), make([]SiteID, n), make([]int64, n)
	durations, codes, urls := make([]int64, n), make([]int, n), make([]string, n)
	addresses, failures, heads := make([]string, n), make([]string, n), make([][]byte, n)
	for i, record := range r.records {
		d, a, v := &record.Delivery, &record.Attempt, &record.Verdict
		organisations[i], events[i], leases[i] = d.Event.OrganisationID, d.Event.ID, d.lease
		rounds[i], numbers[i], verdicts[i] = d.round, d.Number, string(v.Status)
		retries[i], endpoints[i], started[i] = v.Retry.Milliseconds(), d.EndpointSite, int64(d.StartedAt)
		durations[i], codes[i], urls[i] = a.Duration.Milliseconds(), a.StatusCode, d.URL
		addresses[i], failures[i], heads[i] = a.Address, a.Error, a.ResponseHead
		if heads[i] == nil {
			heads[i] = []byte{} // not NULL
		}
	}
	return r.tx.Select(ctx, recordWebhooksSQL, postgres.Args{
		"organisations": organisations, "events": events, "leases": leases, "rounds": rounds, "numbers": numbers,
		"verdicts": verdicts, "retries": retries, "endpoints": endpoints, "started": started, "durations": durations,
		"codes": codes, "urls": urls, "addresses": addresses, "errors": failures, "heads": heads,
		"healthy": healthyBreaker.columns(),
	}, &r.written)
}

// writeBreakers updates the breakers of the endpoints with the result of each record, and disables
// endpoints that are gone. Successes at a healthy endpoint write nothing. An attempt at an earlier
// URL of the endpoint does not count.
func (r *webhookRecords) writeBreakers(ctx context.Context) error {
	keys := distinct(r.written, func(w recordedEvent) (endpointKey, bool) {
		return r.of(w).Delivery.endpoint(), w.MovesBreaker
	})
	if len(keys) == 0 {
		return nil
	}
	locked, now, err := readWebhookEndpoints(ctx, r.tx, lockEndpointsSQL, keys)
	if err != nil {
		return err
	}
	r.moved = make(map[endpointKey]bool, len(locked))
	var moved []*webhookEndpointRow
	trace := map[*webhookEndpointRow]TraceID{} // of the attempt that disabled the endpoint
	for _, record := range r.records {
		k := record.Delivery.endpoint()
		row := locked[k]
		if row == nil || row.URL != record.Delivery.URL {
			continue
		}
		if !r.moved[k] {
			r.moved[k] = true
			moved = append(moved, row)
		}
		row.WebhookBreaker = row.after(record.success(), record.Verdict.Gone, now)
		if row.DisabledAt == 0 && row.isGone(now) {
			row.DisabledAt, trace[row] = now, record.Delivery.Event.TraceID
		}
	}
	if len(moved) == 0 {
		return nil
	}
	if err := writeWebhookBreakers(ctx, r.tx, moved); err != nil {
		return err
	}
	for _, row := range moved {
		if id, disabled := trace[row]; disabled {
			if err := r.disable(ctx, row, id); err != nil {
				return err
			}
		}
	}
	return nil
}

var writeBreakersSQL = postgres.SQL(`
UPDATE webhook_endpoints w SET failures = b.failures, open_until = nullif(b.open_until, 0), openings = b.openings,
    width = b.width, gone_since = nullif(b.gone_since, 0), disabled_at = nullif(b.disabled_at, 0)
FROM unnest(:organisations::uuid[], :sites::uuid[], :failures::int[], :open_until::bigint[], :openings::int[],
    :widths::int[], :gone_since::bigint[], :disabled_at::bigint[])
    AS b (organisation_id, site_id, failures, open_until, openings, width, gone_since, disabled_at)
WHERE w.organisation_id = b.organisation_id AND w.site_id = b.site_id`)

// writeWebhookBreakers stores the breakers of locked endpoints, and whether they are disabled.
func writeWebhookBreakers(ctx context.Context, tx postgres.Tx, rows []*webhookEndpointRow) error {
	n := len(rows)
	organisations, sites, failures := make([]OrganisationID, n), make([]SiteID, n), make([]int, n)
	openUntil, openings, widths := make([]int64, n), make([]int, n), make([]int, n)
	goneSince, disabledAt := make([]int64, n), make([]int64, n)
	for i, r := range rows {
		organisations[i], sites[i], failures[i] = r.OrganisationID, r.SiteID, r.Failures
		openUntil[i], openings[i], widths[i] = int64(r.OpenUntil), r.Openings, r.Width
		goneSince[i], disabledAt[i] = int64(r.GoneSince), int64(r.DisabledAt)
	}
	_, err := tx.Run(ctx, writeBreakersSQL, postgres.Args{
		"organisations": organisations, "sites": sites, "failures": failures, "open_until": openUntil,
		"openings": openings, "widths": widths, "gone_since": goneSince, "disabled_at": disabledAt,
	})
	return err
}

// disable raises an alert about a disabled endpoint. It makes the parked events due, so that their
// claims make them undelivered.
func (r *webhookRecords) disable(ctx context.Context, row *webhookEndpointRow, trace TraceID) error {
	err := raiseAlerts(ctx, r.tx, []alert{{
		kind: alertEndpointDisabled, subject: endpointName(row.OrganisationID, row.SiteID),
		detail:       "nothing but 410 for " + WebhookGoneFor.String(),
		organisation: row.OrganisationID, site: row.SiteID, trace: trace,
	}})
	if err != nil {
		return err
	}
	return reviveWaiting(ctx, r.tx, row.OrganisationID, row.SiteID)
}

// retryTasksSQL postpones tasks until their next attempts. Redis keeps a postponed task and repeats
// it at that time, unless redispatch is set: the dispatcher then sends it again. The statement
// locks tasks in the order of their ids, as dueTasksSQL does.
var retryTasksSQL = postgres.SQL(`
WITH tasks AS MATERIALIZED (
    SELECT x.id FROM outbox x WHERE x.id = ANY (:tasks::uuid[]) ORDER BY x.id FOR UPDATE
)
UPDATE outbox o SET available_at = svc_now() + a.retry,
    dispatched_at = CASE WHEN NOT a.redispatch THEN o.dispatched_at END,
    redispatch_after = CASE WHEN NOT a.redispatch AND o.dispatched_at IS NOT NULL
        THEN statement_timestamp() + (a.retry + :retry_lease) * interval '1 ms' END
FROM unnest(:tasks::uuid[], :retries::bigint[], :redispatch::bool[]) AS a (id, retry, redispatch)
WHERE o.id = a.id AND o.id = ANY (ARRAY(SELECT id FROM tasks))`)

// writeTasks ends the tasks of events with a final verdict, and postpones the tasks of events that
// get another attempt. The tasks of redeliveries requested meanwhile become due.
func (r *webhookRecords) writeTasks(ctx context.Context) error {
	var ended, retried, renewed []TaskID
	var retries []int64
	var redispatch []bool
	for _, w := range r.written {
		record := r.of(w)
		switch {
		case !w.NewTask.IsZero():
			renewed = append(renewed, w.NewTask)
		case w.Decided && record.Verdict.Status == WebhookPending:
			retried = append(retried, record.Delivery.Task)
			retries = append(retries, record.Verdict.Retry.Milliseconds())
			redispatch = append(redispatch, record.Verdict.Redispatch)
		case w.Decided:
			ended = append(ended, record.Delivery.Task)
		}
	}
	if len(ended) > 0 {
		if _, err := r.tx.Run(ctx, endTasksSQL, postgres.Args{"tasks": ended}); err != nil {
			return err
		}
	}
	if len(retried) > 0 {
		_, err := r.tx.Run(ctx, retryTasksSQL, postgres.Args{
			"tasks": retried, "retries": retries, "redispatch": redispatch, "retry_lease": retryLease.Milliseconds(),
		})
		if err != nil {
			return err
		}
	}
	return makeTasksDue(ctx, r.tx, renewed)
}

// writeAlerts raises an alert about each event that has failed for good, and closes the alert when
// a redelivery succeeds.
func (r *webhookRecords) writeAlerts(ctx context.Context) error {
	var raised []alert
	var closed []string
	for _, w := range r.written {
		record := r.of(w)
		event := &record.Delivery.Event
		switch {
		case w.Decided && record.Verdict.Status == WebhookFailed && !event.Test:
			detail := "no answer"
			if record.Attempt.Error != "" {
				detail = record.Attempt.Error
			}
			raised = append(raised, alert{
				kind: alertWebhookFailed, subject: event.ID.String(), detail: detail,
				organisation: event.OrganisationID, site: event.SiteID, trace: event.TraceID,
			})
		case record.success() && w.Redelivered:
			closed = append(closed, event.ID.String())
		}
	}
	if err := raiseAlerts(ctx, r.tx, raised); err != nil {
		return err
	}
	return closeAlerts(ctx, r.tx, alertWebhookFailed, closed...)
}
