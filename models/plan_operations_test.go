package models_test

import (
	"context"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// runOperations calls what operators and scrapes of metrics call.
func (p *planned) runOperations() {
	s, organisation := p.store, p.site.OrganisationID
	p.call("Health", func(ctx context.Context) error { return only(s.Health(ctx)) })
	p.call("Lanes", func(ctx context.Context) error { return only(s.Lanes(ctx, 50)) })
	p.call("PartnerBacklogs", func(ctx context.Context) error { return only(s.PartnerBacklogs(ctx)) })
	p.call("DeadLetters", func(ctx context.Context) error { return only(s.DeadLetters(ctx, 50)) })
	p.call("TroubledEndpoints", func(ctx context.Context) error { return only(s.TroubledEndpoints(ctx, 50)) })
	p.call("Differences", func(ctx context.Context) error { return only(s.Differences(ctx, 50)) })
	p.call("OrganisationNames", func(ctx context.Context) error {
		return only(s.OrganisationNames(ctx, []models.OrganisationID{organisation}))
	})
	p.call("RecordRailAnswers", func(ctx context.Context) error {
		return s.RecordRailAnswers(ctx, []models.RailCount{{Call: "debit", Status: "succeeded", Answers: 1}})
	})
	p.call("RailAnswers", func(ctx context.Context) error { return only(s.RailAnswers(ctx)) })
	p.call("AcknowledgeAlert", func(ctx context.Context) error {
		return expect(s.AcknowledgeAlert(ctx, models.AlertLateTruth, p.name("none")), models.ErrNotFound)
	})
	p.call("UnparkWebhookEndpoint", func(ctx context.Context) error {
		return expect(s.UnparkWebhookEndpoint(ctx, organisation, p.site.ID), models.ErrNoWebhookEndpoint)
	})
	p.runPauses()
	p.runSearches()
}

func (p *planned) runPauses() {
	s, organisation := p.store, p.site.OrganisationID
	p.call("PauseDebits", func(ctx context.Context) error { return s.PauseDebits(ctx, organisation) })
	p.call("PauseQueue", func(ctx context.Context) error { return s.PauseQueue(ctx, models.QueueWebhooks) })
	p.call("Pauses", func(ctx context.Context) error { return only(s.Pauses(ctx)) })
	p.call("ResumeQueue", func(ctx context.Context) error { return s.ResumeQueue(ctx, models.QueueWebhooks) })
	var waking models.TaskID
	p.call("ResumeDebits", func(ctx context.Context) (err error) {
		waking, err = s.ResumeDebits(ctx, organisation)
		return err
	})
	p.call("WakeDebits", func(ctx context.Context) error { return only(s.WakeDebits(ctx, waking, 10)) })
}

// runSearches finds one subject of each kind, and tells the stories of a batch and a payment.
func (p *planned) runSearches() {
	s := p.store
	batch := modelstest.Batch(p.site, p.name("found"), "ada")
	submitted := modelstest.Submit(p.t, s, batch).Batch
	intent := modelstest.Intent(p.t, s, p.site.ID, 100)
	key := submitted.RailKeys().Row("row-1")
	for _, text := range []string{
		p.site.OrganisationID.String(), p.site.ID.String(), submitted.ID.String(), intent.ID.String(),
		string(batch.TraceID), key, models.PaymentRailKey(intent.ID), batch.Reference, "ada", p.name("none"),
	} {
		p.call("Search", func(ctx context.Context) error { return only(s.Search(ctx, text)) })
	}
	p.call("AnySite", func(ctx context.Context) error { return only(s.AnySite(ctx, p.site.ID)) })
	p.call("DebitOfKey", func(ctx context.Context) error { return only(s.DebitOfKey(ctx, key)) })
	p.call("BatchStory", func(ctx context.Context) error {
		return only(s.BatchStory(ctx, p.site.ID, batch.Reference))
	})
	p.call("PaymentStory", func(ctx context.Context) error { return only(s.PaymentStory(ctx, intent.ID)) })
}
