package models

import (
	"context"

	"github.com/google/uuid"

	"partnerbilling/models/postgres"
)

var (
	batchFactsSQL = postgres.SQL(`
SELECT trace_id, epoch, (SELECT now FROM service_now) AS now,
       EXISTS (SELECT FROM debit_pauses d WHERE d.organisation_id = b.organisation_id) AS paused
FROM batches b WHERE b.site_id = :site AND b.id = :batch`)
	rowFactsSQL = postgres.SQL(`
SELECT row_index AS index, link_id, in_doubt, coalesce(lease_until > statement_timestamp(), false) AS leased, deferrals,
       called_at
FROM batch_rows WHERE site_id = :site AND batch_id = :batch ORDER BY row_index`)
	paymentFactsSQL = postgres.SQL(`
SELECT p.site_id, p.organisation_id, p.closing_as, p.attempts, p.in_doubt,
       coalesce(p.lease_until > statement_timestamp(), false) AS leased, p.deferrals, p.called_at, p.next_attempt_at,
       (SELECT recorded_at FROM ledger_entries l WHERE l.rail_key = :key) AS recorded_at,
       (SELECT now FROM service_now) AS now
FROM payment_intents p WHERE p.id = :id`)
	alertsAboutSQL = postgres.SQL(`
SELECT ` + alertColumns + ` FROM alerts WHERE closed_at IS NULL AND kind = ANY (:kinds::text[])
  AND subject = ANY (:subjects::text[])
ORDER BY raised_at LIMIT :limit`)
)

// maxStoryAlerts is the maximum number of alerts in a story.
const maxStoryAlerts = 100

// BatchStory returns the story of a batch. ErrNotFound: the Site has no such batch, or its
// retention has ended.
func (s *Store) BatchStory(ctx context.Context, site SiteID, reference string) (story BatchStory, err error) {
	batch, rows, err := s.GetBatch(ctx, site, reference)
	if err != nil {
		return story, err
	}
	story.Batch = batch
	of := postgres.Args{"site": site, "batch": batch.ID}
	if err = s.pg.Get(ctx, batchFactsSQL, of, &story); err != nil {
		return story, wrap("batch story", err)
	}
	var facts []RowStory
	if err = s.pg.Select(ctx, rowFactsSQL, of, &facts); err != nil {
		return story, wrap("batch story", err)
	}
	subjects, keys := []string{uuid.UUID(batch.ID).String()}, batch.RailKeys()
	for i := range facts[:min(len(facts), len(rows))] {
		facts[i].BatchRow, facts[i].RailKey = rows[i], keys.Row(rows[i].RowReference)
		subjects = append(subjects, facts[i].RailKey)
	}
	story.Rows = facts
	if story.Events, err = s.eventsOfTrace(ctx, batch.OrganisationID, story.TraceID); err != nil {
		return story, wrap("batch story", err)
	}
	for _, e := range story.Events {
		subjects = append(subjects, e.ID.String())
	}
	story.Alerts, err = s.alertsAbout(ctx, subjects)
	return story, wrap("batch story", err)
}

// eventsOfTrace returns the events of a trace, oldest first.
func (s *Store) eventsOfTrace(
	ctx context.Context, organisation OrganisationID, id TraceID,
) (events []WebhookEvent, err error) {
	prefix, ok := id.prefix()
	if !ok {
		return nil, nil
	}
	t := Trace{ID: id}
	err = s.pg.InSnapshot(ctx, func(tx postgres.Tx) error { return t.readEvents(ctx, tx, organisation, prefix) })
	return t.Events, err
}

// alertsAbout returns the open alerts with one of the subjects, oldest first, at most
// maxStoryAlerts.
func (s *Store) alertsAbout(ctx context.Context, subjects []string) (alerts []Alert, err error) {
	err = s.pg.Select(ctx, alertsAboutSQL, postgres.Args{
		"kinds": AlertKinds, "subjects": subjects, "limit": maxStoryAlerts,
	}, &alerts)
	return alerts, err
}

// PaymentStory returns the story of a payment intent of any organisation. ErrNotFound: there is
// none.
func (s *Store) PaymentStory(ctx context.Context, id PaymentIntentID) (story PaymentStory, err error) {
	var facts struct {
		PaymentStory
		SiteID         SiteID
		OrganisationID OrganisationID
	}
	key := PaymentRailKey(id)
	err = s.pg.Get(ctx, paymentFactsSQL, postgres.Args{"id": id, "key": key}, &facts)
	if err != nil {
		return story, wrap("payment story", notFound(err, "payment intent"))
	}
	story, story.RailKey = facts.PaymentStory, key
	if story.Intent, err = s.PaymentIntent(ctx, facts.SiteID, id); err != nil {
		return story, err
	}
	filter := WebhookFilter{PaymentIntentID: id}
	query := WebhookQuery{OrganisationID: facts.OrganisationID, Filter: filter, Limit: 100}
	page, err := s.ListWebhookEvents(ctx, query)
	if err != nil {
		return story, err
	}
	subjects := []string{key}
	for _, e := range page.Items {
		attempts, err := s.webhookAttempts(ctx, facts.OrganisationID, e.ID, 0)
		if err != nil {
			return story, wrap("payment story", err)
		}
		story.Events = append(story.Events, EventStory{WebhookEvent: e, Attempts: attempts})
		subjects = append(subjects, e.ID.String())
	}
	story.Alerts, err = s.alertsAbout(ctx, subjects)
	return story, wrap("payment story", err)
}
