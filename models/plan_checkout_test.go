package models_test

import (
	"context"
	"time"

	"github.com/google/uuid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func (p *planned) runPayments() {
	s := p.store
	var intent models.PaymentIntent
	key := &models.IdempotencyKey{ClientID: models.ClientID(uuid.New()), Path: "/p", Key: p.name("key"),
		Fingerprint: []byte("f")}
	for _, k := range []*models.IdempotencyKey{nil, key} {
		p.call("CreatePaymentIntent", func(ctx context.Context) (err error) {
			intent, _, err = s.CreatePaymentIntent(ctx,
				models.NewPaymentIntent{SiteID: p.site.ID, Amount: 100, OrderID: p.name("order"),
					QRCodeFormat: models.QRCodeText}, k)
			return err
		})
	}
	p.call("PaymentIntent", func(ctx context.Context) error { return only(s.PaymentIntent(ctx, p.site.ID, intent.ID)) })
	p.call("PaymentIntentByCode", func(ctx context.Context) error {
		return only3(s.PaymentIntentByCode(ctx, intent.Code))
	})
	p.call("OrganisationPaymentIntent", func(ctx context.Context) error {
		return only(s.OrganisationPaymentIntent(ctx, p.site.OrganisationID, intent.ID))
	})
	for _, q := range []models.IntentQuery{{}, {OrderID: p.name("order")}, {State: models.IntentCreated},
		{State: models.IntentPending}, {Status: models.TransactionSettled}} {
		q.SiteID, q.Direction, q.Limit = p.site.ID, models.Forward, 50
		p.call("ListPaymentIntents", func(ctx context.Context) error { return only(s.ListPaymentIntents(ctx, q)) })
	}
	party := models.Party{CustomerID: "c", AgreementID: "a"}
	var started models.StartedTransaction
	p.call("StartTransaction", func(ctx context.Context) (err error) {
		started, err = s.StartTransaction(ctx, intent.Code, party, nil)
		return err
	})
	var claimed models.ClaimedTransaction
	p.call("AbandonTransaction", func(ctx context.Context) error {
		return s.AbandonTransaction(ctx, started.Task, models.NewLeaseToken())
	})
	p.call("ClaimTransaction", func(ctx context.Context) (err error) {
		claimed, err = s.ClaimTransaction(ctx, started.Task, models.NewLeaseToken())
		return err
	})
	p.call("ExtendTransaction", func(ctx context.Context) error { return only(s.ExtendTransaction(ctx, claimed)) })
	p.call("ParkTransaction", func(ctx context.Context) error { return s.ParkTransaction(ctx, started.Task) })
	p.call("FinishTransaction", func(ctx context.Context) error {
		return only(s.FinishTransaction(ctx, claimed, models.TransactionResult{Status: models.TransactionSettled,
			FromRail: true, Answered: true}))
	})
	undecided := modelstest.Intent(p.t, s, p.site.ID, 100)
	modelstest.Pay(p.t, s, undecided, party)
	p.call("DecidePayment", func(ctx context.Context) error {
		return only3(s.DecidePayment(ctx, undecided.ID, models.DecidedNotDebited))
	})
	unpaid := modelstest.Intent(p.t, s, p.site.ID, 100)
	p.call("CancelPaymentIntent", func(ctx context.Context) error {
		return only3(s.CancelPaymentIntent(ctx, p.site.ID, unpaid.ID))
	})
}

func (p *planned) runWebhooks() {
	s, organisation := p.store, p.site.OrganisationID
	p.call("PutWebhookEndpoint", func(ctx context.Context) error {
		return only3(s.PutWebhookEndpoint(ctx, p.ring, organisation, p.site.ID, "https://example.com/hook",
			models.WebhookEventTypes...))
	})
	p.call("WebhookEndpoint", func(ctx context.Context) error {
		return only(s.WebhookEndpoint(ctx, organisation, p.site.ID))
	})
	p.call("WebhookEndpoints", func(ctx context.Context) error { return only(s.WebhookEndpoints(ctx, organisation)) })
	p.call("RotateWebhookSecret", func(ctx context.Context) error {
		return only(s.RotateWebhookSecret(ctx, p.ring, organisation, nil))
	})
	p.call("WebhookSecrets", func(ctx context.Context) error {
		return only(s.WebhookSecrets(ctx, p.ring, organisation))
	})
	push := func() (models.WebhookEventID, models.TaskID) {
		paid := models.Amount(500)
		var id models.WebhookEventID
		var task models.TaskID
		p.call("InsertWebhookEvent", func(ctx context.Context) (err error) {
			id, task, err = s.InsertWebhookEvent(ctx, organisation, models.NewTraceID(), models.TransactionStatusPush{
				SiteID: models.PushSite{ID: p.site.ID}, PaymentIntentID: models.NewPaymentIntentID(),
				TransactionStatus: "Settled", AmountPaid: &paid,
			})
			return err
		})
		return id, task
	}
	deliver := func(record models.WebhookRecord, wait models.LockWait, tasks ...models.TaskID) {
		claims := make([]models.WebhookClaim, len(tasks))
		for i, task := range tasks {
			claims[i] = models.WebhookClaim{Task: task, Lease: models.NewLeaseToken()}
		}
		var claimed []models.WebhookClaimed
		p.call("ClaimWebhooks", func(ctx context.Context) (err error) {
			claimed, err = s.ClaimWebhooks(ctx, p.ring, claims, wait)
			return err
		})
		var records []*models.WebhookRecord
		for _, c := range claimed {
			if c.Delivery == nil {
				p.t.Fatalf("claimed %+v", c)
			}
			made := record
			made.Delivery = *c.Delivery
			records = append(records, &made)
		}
		p.call("RecordWebhooks", func(ctx context.Context) error { return only3(s.RecordWebhooks(ctx, records, 1)) })
	}
	success := models.WebhookRecord{
		Attempt: models.WebhookAttempt{StatusCode: 204},
		Verdict: models.WebhookVerdict{Status: models.WebhookDelivered},
	}
	id, task := push()
	deliver(success, models.WaitForLocked, task)
	_, first := push()
	_, second := push()
	dispatch := models.Dispatch{Queue: models.QueueWebhooks, Limit: 10, InFlight: 100_000}
	p.call("ClaimTasks", func(ctx context.Context) error {
		return only(s.ClaimTasks(ctx, []models.TaskID{first, second}, dispatch, dispatch))
	})
	deliver(success, models.SkipLocked, first, second)
	_, failing := push()
	deliver(models.WebhookRecord{
		Attempt: models.WebhookAttempt{StatusCode: 500},
		Verdict: models.WebhookVerdict{Status: models.WebhookPending, Retry: time.Minute},
	}, models.SkipLocked, failing)
	p.call("WebhookEvent", func(ctx context.Context) error { return only3(s.WebhookEvent(ctx, organisation, id)) })
	p.call("WebhookAttempt", func(ctx context.Context) error {
		return only(s.WebhookAttempt(ctx, organisation, id, 1))
	})
	for _, f := range []models.WebhookFilter{{}, {Status: models.WebhookPending}, {SiteID: p.site.ID},
		{Type: models.EventBatchSettled}} {
		p.call("ListWebhookEvents", func(ctx context.Context) error {
			return only(s.ListWebhookEvents(ctx, models.WebhookQuery{OrganisationID: organisation, Filter: f,
				Direction: models.Forward, Limit: 50}))
		})
	}
	p.call("RedeliverWebhook", func(ctx context.Context) error {
		return only3(s.RedeliverWebhook(ctx, organisation, id))
	})
	p.call("RedeliverWebhooks", func(ctx context.Context) error {
		return only(s.RedeliverWebhooks(ctx, organisation, models.WebhookFilter{Status: models.WebhookFailed}))
	})
	p.call("CreateTestWebhook", func(ctx context.Context) error {
		return only3(s.CreateTestWebhook(ctx, organisation, p.site.ID, models.NewTraceID()))
	})
	p.call("TailWebhooks", func(ctx context.Context) error {
		tail, err := s.TailWebhooks(ctx, organisation, nil)
		if err == nil {
			_, _, err = tail.Next(ctx)
		}
		return err
	})
	p.call("LastWebhook", func(ctx context.Context) error { return only(s.LastWebhook(ctx, organisation)) })
	batch := modelstest.Submit(p.t, s, modelstest.Batch(p.site, p.name("announced"), "ada"))
	must(p.t, only3(s.CancelBatch(p.t.Context(), p.site.ID, batch.Batch.Reference)))
	var announcement models.TaskID
	must(p.t, p.admin.DB().NewRaw("SELECT id FROM outbox WHERE subject_id = ? AND kind = 'announceBatch'",
		batch.Batch.ID).Scan(p.t.Context(), &announcement))
	p.call("Announce", func(ctx context.Context) error { return only(s.Announce(ctx, announcement)) })
	p.call("DeleteWebhookEndpoint", func(ctx context.Context) error {
		return s.DeleteWebhookEndpoint(ctx, organisation, p.site.ID)
	})
}
