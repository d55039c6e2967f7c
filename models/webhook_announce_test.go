package models_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// announce runs every announcing task twice, as a duplicated task would, and returns their number.
func (w *webhooks) announce() int {
	w.t.Helper()
	var tasks []models.TaskID
	must(w.t, w.DB().
		NewRaw(
			"SELECT id FROM outbox WHERE kind IN ('announceBatch', 'announceRow') AND queue = 'webhooks' ORDER BY id").
		Scan(w.t.Context(), &tasks))
	for _, task := range tasks {
		_, err := w.Announce(w.t.Context(), task)
		must(w.t, err)
		again, err := w.Announce(w.t.Context(), task)
		must(w.t, err)
		if !again.IsZero() {
			w.t.Errorf("%s announced twice", task)
		}
	}
	return len(tasks)
}

// told returns the bodies of all events of a type, without their keys, oldest first.
func (w *webhooks) told(event models.WebhookEventType) (bodies []string) {
	w.t.Helper()
	for _, e := range slices.Backward(w.list(models.WebhookQuery{Filter: models.WebhookFilter{Type: event}}).Items) {
		full, _ := w.event(e.ID)
		if full.Type != event || !full.PaymentIntentID.IsZero() || full.TransactionStatus != "" {
			w.t.Errorf("%s: %+v", event, full)
		}
		bodies = append(bodies, strings.ReplaceAll(string(full.Body), e.ID.String(), "KEY"))
	}
	return bodies
}

func (w *webhooks) wantTold(event models.WebhookEventType, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.told(event)); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", event, diff)
	}
}

func (w *webhooks) count(from string, args ...any) (n int) {
	w.t.Helper()
	must(w.t, w.DB().NewRaw("SELECT count(*) FROM "+from, args...).Scan(w.t.Context(), &n))
	return n
}

// settlements are the ways in which a batch of two customers, one of them linked, settles.
var settlements = map[string]struct {
	settle            func(w *webhooks, done models.Submission)
	succeeded, failed int
}{
	"the last row is recorded": {func(w *webhooks, done models.Submission) {
		finish(w.t, w.Store, claim(w.t, w.Store, done.Tasks[0]),
			models.RowResult{Index: 0, Outcome: models.OutcomeSucceeded,
				FromRail: true},
			models.RowResult{Index: 1, Outcome: models.OutcomeCustomerNotActive})
	}, 1, 1},
	"it is cancelled": {func(w *webhooks, done models.Submission) {
		for range 2 {
			_, _, err := w.CancelBatch(w.t.Context(), w.site.ID, done.Batch.Reference)
			must(w.t, err)
		}
	}, 0, 2},
	"no attempt may begin any more": {func(w *webhooks, _ models.Submission) {
		w.advance(models.SettleWithin - models.LastAttemptBefore)
		if n, err := w.CloseUnsentRows(w.t.Context()); n != 2 || err != nil {
			w.t.Fatalf("closed %d rows, %v", n, err)
		}
	}, 0, 2},
	"its deadline comes": {func(w *webhooks, done models.Submission) {
		claim(w.t, w.Store, done.Tasks[0])
		w.advance(models.SettleWithin)
		_, err := w.CloseOverdueBatch(w.t.Context())
		must(w.t, err)
	}, 0, 2},
	"a read comes after its deadline": {func(w *webhooks, done models.Submission) {
		w.advance(models.SettleWithin)
		for range 2 {
			_, _, err := w.GetBatch(w.t.Context(), w.site.ID, done.Batch.Reference)
			must(w.t, err)
		}
	}, 0, 2},
}

// Every kind of settlement is announced once to an endpoint that subscribes at that moment.
func TestBatchSettledIsAnnounced(t *testing.T) {
	t.Parallel()
	for name, c := range settlements {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWebhooks(t)
			w.ask(models.SiteID{}, models.EventTransactionStatus, models.EventBatchSettled)
			modelstest.Customer(t, w.Store, w.site.ID, "ada", models.BehaviourPays)
			done := modelstest.Submit(t, w.Store, modelstest.Batch(w.site, "b <1>", "ada", "unknown"))
			c.settle(w, done)
			w.ask(models.SiteID{}) // too late: the endpoint of that moment decides
			if n := w.announce(); n != 1 {
				t.Errorf("%d tasks announce it", n)
			}
			batch, _, err := w.GetBatch(t.Context(), w.site.ID, "b <1>")
			must(t, err)
			w.wantTold(models.EventBatchSettled,
				fmt.Sprintf(`{"type":"batchSettled","data":{"idempotencyKey":"KEY","siteId":{"id":"%s"},`+
					`"batch":{"batchReference":"b <1>","state":"settled","submittedAt":%d,"settleBy":%d,"settledAt":%d,"rowCount":2,"totalAmount":201,`+
					`"counts":{"pending":0,"inProgress":0,"settled":2,"succeeded":%d,"failed":%d},"succeededAmount":%d}},"traceId":"%s"}`,
					w.site.ID, batch.SubmittedAt, batch.SettleBy, batch.SettledAt, c.succeeded, c.failed,
					batch.SucceededAmount, w.trace(done.Batch.ID)))
			if n := w.count("outbox WHERE kind = 'deliverWebhook'"); n != 1 {
				t.Errorf("%d tasks deliver it", n)
			}
			modelstest.Audit(t, w.Store)
		})
	}
}

// An endpoint without a subscription gets nothing: neither a task nor an event is written.
func TestUnaskedEventsAreNotWritten(t *testing.T) {
	t.Parallel()
	all := models.WebhookEventTypes
	for name, configure := range map[string]func(*webhooks){
		"no endpoint":                  func(*webhooks) {},
		"an endpoint that asks not":    func(w *webhooks) { w.ask(models.SiteID{}) },
		"an override decides":          func(w *webhooks) { w.ask(models.SiteID{}, all...); w.ask(w.site.ID) },
		"the endpoint of another Site": func(w *webhooks) { w.ask(w.otherSite(), all...) },
		"a disabled endpoint": func(w *webhooks) {
			w.ask(models.SiteID{}, all...)
			_, err := w.DB().ExecContext(w.t.Context(), "UPDATE webhook_endpoints SET disabled_at = 1")
			must(w.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWebhooks(t)
			configure(w)
			modelstest.Customer(t, w.Store, w.site.ID, "ada", models.BehaviourPays) // linked
			for reference, c := range settlements {
				c.settle(w, modelstest.Submit(t, w.Store, modelstest.Batch(w.site, reference, "ada", "unknown")))
			}
			w.correctRow("corrected")
			_, err := w.RevokeCustomer(t.Context(), w.site.ID, "ada")
			must(t, err)
			modelstest.Invite(t, w.Store, w.site.ID, "eve")
			w.advance(models.DefaultInvitationLife)
			modelstest.Invite(t, w.Store, w.site.ID, "eve") // the one before has expired
			w.advance(models.DefaultInvitationLife)
			if n, err := w.ExpireInvitations(t.Context(), 10); n != 1 || err != nil {
				t.Errorf("expired %d, %v", n, err)
			}
			if tasks, events := w.count("outbox WHERE queue = 'webhooks'"),
				w.count("webhook_events"); tasks+events != 0 {
				t.Errorf("%d tasks and %d events", tasks, events)
			}
		})
	}
}

// ask configures an endpoint that subscribes to events.
func (w *webhooks) ask(site models.SiteID, events ...models.WebhookEventType) {
	w.t.Helper()
	_, _, err := w.PutWebhookEndpoint(w.t.Context(), w.ring, w.site.OrganisationID, site, "https://example.com/",
		events...)
	must(w.t, err)
}

func (w *webhooks) otherSite() models.SiteID {
	w.t.Helper()
	site, err := w.CreateSite(w.t.Context(), w.site.OrganisationID, "another")
	must(w.t, err)
	return site.ID
}

// correctRow submits a batch whose rows 0 to 2 are in doubt at its deadline, and records late
// answers about rows 1 and 2.
func (w *webhooks) correctRow(reference string) models.Submission {
	w.t.Helper()
	done := modelstest.Submit(w.t, w.Store, modelstest.Batch(w.site, reference, "ada", "ada", "ada"))
	late := claim(w.t, w.Store, done.Tasks[0])
	w.advance(models.SettleWithin)
	_, err := w.CloseOverdueBatch(w.t.Context())
	must(w.t, err)
	w.advance(time.Minute)
	finish(w.t, w.Store, late, models.RowResult{Index: 1, Outcome: models.OutcomeSucceeded, FromRail: true})
	must(w.t, w.ParkChunk(w.t.Context(), done.Tasks[0]))
	confirming := claim(w.t, w.Store, done.Tasks[0])
	finish(w.t, w.Store, confirming, models.RowResult{Index: 0, RetryAfter: time.Minute},
		models.RowResult{Index: 2, Outcome: models.OutcomeInsufficientFunds, FromRail: true})
	return done
}

// A correction, from the rail or an operator, is announced once: the row as in a GET, and its
// batch's reference.
func TestRowCorrectedIsAnnounced(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.ask(models.SiteID{})
	w.ask(w.site.ID, models.EventTransactionStatus, models.EventRowCorrected)
	modelstest.Customer(t, w.Store, w.site.ID, "ada", models.BehaviourPays)
	done := w.correctRow("b")
	_, err := w.DecideRow(t.Context(), w.site.ID, "b", "row-0", models.DecidedNotDebited)
	must(t, err)
	if n := w.announce(); n != 3 {
		t.Errorf("%d tasks announce it", n)
	}
	_, rows, err := w.GetBatch(t.Context(), w.site.ID, "b")
	must(t, err)
	body := func(i int) string {
		row, err := models.EncodeJSON(rows[i].Summary())
		must(t, err)
		return fmt.Sprintf(
			`{"type":"rowCorrected","data":{"idempotencyKey":"KEY","siteId":{"id":"%s"},"batchReference":"b","row":%s},"traceId":"%s"}`,
			w.site.ID, row, w.trace(done.Batch.ID))
	}
	got := w.told(models.EventRowCorrected)
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(slices.Values([]string{body(0), body(1), body(2)})), got); diff != "" ||
		rows[1].CorrectedOutcome != models.OutcomeSucceeded {
		t.Errorf("row %+v (-want +got):\n%s", rows[1], diff)
	}
}

// Nothing is announced of a batch that retention has dropped.
func TestAnnounceAfterRetention(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.ask(models.SiteID{}, models.WebhookEventTypes...)
	done := modelstest.Submit(t, w.Store, modelstest.Batch(w.site, "b", "ada"))
	_, _, err := w.CancelBatch(t.Context(), w.site.ID, done.Batch.Reference)
	must(t, err)
	w.advance(models.BatchRetention)
	if n, err := w.DropOldBatches(t.Context(), 10); n != 10 || err != nil {
		t.Fatalf("dropped %d, %v", n, err)
	}
	if n := w.announce(); n != 1 {
		t.Errorf("%d tasks", n)
	}
	if tasks, events := w.count("outbox WHERE queue = 'webhooks'"), w.count("webhook_events"); tasks+events != 0 {
		t.Errorf("%d tasks and %d events", tasks, events)
	}
}

// If the endpoint is gone at the announcement, the event becomes undelivered and can be sent later.
func TestAnnounceWithoutAnEndpoint(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.ask(models.SiteID{}, models.WebhookEventTypes...)
	done := modelstest.Submit(t, w.Store, modelstest.Batch(w.site, "b", "ada"))
	_, _, err := w.CancelBatch(t.Context(), w.site.ID, done.Batch.Reference)
	must(t, err)
	must(t, w.DeleteWebhookEndpoint(t.Context(), w.site.OrganisationID, models.SiteID{}))
	w.announce()
	events := w.list(models.WebhookQuery{}).Items
	if len(events) != 1 || events[0].Status != models.WebhookUndelivered {
		t.Fatalf("events %+v", events)
	}
	w.ask(models.SiteID{})
	again, err := w.RedeliverWebhooks(t.Context(), w.site.OrganisationID,
		models.WebhookFilter{Type: models.EventBatchSettled})
	if again.Count != 1 || err != nil {
		t.Errorf("sent %+v again, %v", again, err)
	}
}

// another key.
func TestKeysSurviveALoss(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.ask(models.SiteID{}, models.WebhookEventTypes...)
	done := modelstest.Submit(t, w.Store, modelstest.Batch(w.site, "b", "ada"))
	push := w.push()
	report := func(status string) (keys []string) {
		t.Helper()
		push.TransactionStatus = status
		_, _, err := w.InsertWebhookEvent(t.Context(), w.site.OrganisationID, models.NewTraceID(), push)
		must(t, err)
		_, _, err = w.CancelBatch(t.Context(), w.site.ID, done.Batch.Reference)
		must(t, err)
		w.announce()
		must(t, w.DB().NewRaw("SELECT id::text FROM webhook_events ORDER BY type").Scan(t.Context(), &keys))
		return keys
	}
	lose := func() {
		t.Helper()
		must(t, w.DB().RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			for _, query := range []string{
				"SET LOCAL session_replication_role = 'replica'", // without the triggers of transitions
				"DELETE FROM webhook_events", "DELETE FROM outbox",
				"UPDATE batch_rows SET state = 'pending', outcome = NULL, settled_at = NULL",
				"UPDATE batches SET state = 'inProgress', settled_at = NULL, settled_count = 0",
			} {
				if _, err := tx.ExecContext(ctx, query); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	first := report("Settled")
	lose()
	w.advance(time.Hour)
	if diff := cmp.Diff(first, report("Settled")); diff != "" || len(first) != 2 {
		t.Errorf("the same states have other keys (-before +after):\n%s", diff)
	}
	lose()
	if other := report("Declined"); other[0] == first[0] || other[1] != first[1] {
		t.Errorf("before %s, and with another status %s", first, other)
	}
}

// trace is the trace id of the request that made a batch.
func (w *webhooks) trace(batch models.BatchID) (id models.TraceID) {
	w.t.Helper()
	must(w.t, w.DB().NewRaw("SELECT trace_id FROM batches WHERE id = ?", batch).Scan(w.t.Context(), &id))
	return id
}
