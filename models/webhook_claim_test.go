package models_test

import (
	"errors"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// dispatch claims tasks as a dispatcher does.
func (w *webhooks) dispatch(tasks ...models.TaskID) {
	w.t.Helper()
	claimed, err := w.ClaimTasks(w.t.Context(), tasks, models.Dispatch{InFlight: 16},
		models.Dispatch{InFlight: 16, Limit: 1000})
	if err != nil || len(claimed) != len(tasks) {
		w.t.Fatalf("claimed %d of %d tasks: %v", len(claimed), len(tasks), err)
	}
}

// claimDeliveries claims the attempts of tasks in one call. It returns the delivery of each task,
// nil where there is none.
func (w *webhooks) claimDeliveries(tasks ...models.TaskID) []*models.WebhookDelivery {
	w.t.Helper()
	var deliveries []*models.WebhookDelivery
	for _, claimed := range w.claimBatch(tasks...) {
		deliveries = append(deliveries, claimed.Delivery)
	}
	return deliveries
}

// claimBatch claims the attempts of tasks in one call, and returns the result of each.
func (w *webhooks) claimBatch(tasks ...models.TaskID) []models.WebhookClaimed {
	w.t.Helper()
	claims := make([]models.WebhookClaim, len(tasks))
	for i, task := range tasks {
		claims[i] = models.WebhookClaim{Task: task, Lease: models.NewLeaseToken()}
	}
	got, err := w.ClaimWebhooks(w.t.Context(), w.ring, claims, models.SkipLocked)
	if err != nil || len(got) != len(tasks) {
		w.t.Fatalf("claim batch: %d, %v", len(got), err)
	}
	return got
}

// parked reports whether the event of a task is parked.
func (w *webhooks) parked(task models.TaskID) (is bool) {
	w.t.Helper()
	must(w.t, w.DB().NewRaw("SELECT EXISTS (SELECT FROM webhook_slots WHERE task_id = ? AND until IS NULL)", task).
		Scan(w.t.Context(), &is))
	return is
}

func (w *webhooks) recordDelivered(deliveries ...*models.WebhookDelivery) {
	w.t.Helper()
	var records []*models.WebhookRecord
	for _, d := range deliveries {
		records = append(records, result(*d, delivered))
	}
	w.recordMany(records...)
}

// One call claims due events, whether or not a dispatcher has claimed their tasks, and leaves out
// an event that is due later.
func TestClaimWebhooksTogether(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	_, plain := w.insert()
	_, undispatched := w.insert()
	_, later := w.insert()
	w.dispatch(plain, later)
	if _, err := w.DB().ExecContext(t.Context(), `
		UPDATE webhook_events SET next_attempt_at = svc_now() + 1000 WHERE task_id = ?`, later); err != nil {
		t.Fatal(err)
	}
	got := w.claimDeliveries(undispatched, plain, later)
	if got[2] != nil {
		t.Errorf("took an event that is not due: %+v", got[2])
	}
	for i, task := range []models.TaskID{undispatched, plain} {
		d := got[i]
		if d == nil || d.Task != task || d.Number != 1 || d.URL != "https://one.example/" ||
			d.StartedAt != webhookStart || d.AfterFailure || len(d.Secrets.Live) != 1 || len(d.Event.Body) == 0 {
			t.Fatalf("delivery: %+v", d)
		}
	}
	if again := w.claimBatch(plain); again[0] != (models.WebhookClaimed{}) {
		t.Errorf("claimed twice: %+v", again[0])
	}
	w.claimNothing(plain)
	if due := w.due(); len(due) != 0 {
		t.Errorf("leased, or planned for later, and still due: %v", due)
	}
	w.advance(time.Second)
	if due := w.due(); len(due) != 1 || due[0].ID != later {
		t.Errorf("due later: %v", due)
	}
}

// The error of one organisation's secrets does not fail the claims of others.
func TestClaimWebhooksWithoutSecrets(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	id, task := w.insert()
	_, err := w.DB().ExecContext(t.Context(), "DELETE FROM webhook_secrets")
	must(t, err)
	other := webhooks{Store: w.Store, t: t, ring: w.ring, site: modelstest.Site(t, w.Store), master: w.master}
	other.put(models.SiteID{}, "https://two.example/")
	_, healthy := other.insert()
	got := w.claimBatch(task, healthy)
	if !errors.Is(got[0].Err, models.ErrNoWebhookSecret) || got[0].Delivery != nil {
		t.Errorf("without secrets: %+v", got[0])
	}
	if got[1].Delivery == nil {
		t.Errorf("with secrets: %+v", got[1])
	}
	w.status(id, models.WebhookPending)
	if due := w.due(); len(due) != 1 || due[0].ID != task {
		t.Errorf("due: %v", due)
	}
}

// The bounds of debits apply to debits only. Webhooks have a bound of their own, which leaves
// capacity for ClaimDue.
func TestClaimTasksBoundsEachQueueForItself(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	_, tasks := w.insertMany(6)
	debits := models.Dispatch{Queue: models.QueueDebits, InFlight: 1, Total: 2}
	claim := func(tasks []models.TaskID, limit, want int) {
		t.Helper()
		webhooks := models.Dispatch{Queue: models.QueueWebhooks, InFlight: 16, Limit: limit}
		if got, err := w.ClaimTasks(t.Context(), tasks, debits, webhooks); err != nil || len(got) != want {
			t.Errorf("claimed %d of %d webhooks, want %d; %v", len(got), len(tasks), want, err)
		}
	}
	claim(tasks[:3], 5, 3)
	claim(tasks[3:], 2, 2)
	claim(tasks[3:], 0, 0)
}

// Claims do not wait for the disk: a crash of Postgres may lose a claim whose attempt is in
// progress.
func TestWebhookClaimForgottenInACrash(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]models.WebhookVerdict{"delivered": delivered,
		"to be repeated": retryIn(time.Minute)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWebhooks(t)
			w.put(models.SiteID{}, "https://one.example/")
			id, task := w.insert()
			w.dispatch(task)
			first := w.claimDeliveries(task)[0]
			for _, forget := range []string{
				"DELETE FROM webhook_slots",
				"UPDATE outbox SET epoch = 0, dispatched_at = NULL, redispatch_after = NULL",
			} {
				if _, err := w.DB().ExecContext(t.Context(), forget); err != nil {
					t.Fatal(err)
				}
			}
			w.record(*first, verdict)
			event, attempts := w.event(id)
			if event.Attempts != 1 || len(attempts) != 1 || attempts[0].Number != 1 {
				t.Errorf("event %+v, attempts %+v", event, attempts)
			}
			if verdict == delivered {
				w.status(id, models.WebhookDelivered)
				w.claimNothing(task)
				return
			}
			// a failure without the lease decides nothing: it goes out again, and at once
			w.status(id, models.WebhookPending)
			if due := w.due(); len(due) != 1 || due[0].ID != task {
				t.Errorf("due: %v", due)
			}
			if again := w.claimDeliveries(task)[0]; again == nil || again.Number != 2 {
				t.Errorf("claimed again: %+v", again)
			}
		})
	}
}

func TestClaimWebhooksKeepsCapacity(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	_, tasks := w.insertMany(models.WebhookFirstWidth + 2)
	w.dispatch(tasks...)
	var got []*models.WebhookDelivery
	for i, claimed := range w.claimBatch(tasks...) { // in the order in which they came
		if fits := i < models.WebhookFirstWidth; (claimed.Delivery != nil) != fits || w.parked(tasks[i]) == fits {
			t.Errorf("event %d: %+v", i, claimed)
		}
		got = append(got, claimed.Delivery)
	}
	over := tasks[models.WebhookFirstWidth:]
	if due := w.due(); len(due) != 0 {
		t.Errorf("%d parked events go out", len(due))
	}
	w.recordDelivered(got[0], got[1])
	endpoint, err := w.WebhookEndpoint(t.Context(), w.site.OrganisationID, models.SiteID{})
	if err != nil || endpoint.Breaker.Width != models.WebhookFirstWidth+2 {
		t.Errorf("endpoint after two successes: %+v, %v", endpoint, err)
	}
	w.dispatch(over...) // released by the record
	if d := w.claimDeliveries(over...); d[0] == nil || d[1] == nil {
		t.Errorf("claimed %v after capacity was free", d)
	}
}

func TestClaimWebhooksOfAnOpenEndpoint(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	_, first := w.insert()
	_, second := w.insert()
	w.dispatch(first, second)
	if _, err := w.DB().ExecContext(t.Context(),
		`UPDATE webhook_endpoints SET open_until = svc_now() + 1000`); err != nil {
		t.Fatal(err)
	}
	w.claimBatch(first, second)
	if !w.parked(first) || !w.parked(second) {
		t.Error("an event of an open endpoint is not parked")
	}
	w.advance(time.Second)
	if n, err := w.ReleaseWebhooks(t.Context()); n != 1 || err != nil {
		t.Fatalf("released %d probes, %v", n, err)
	}
	w.dispatch(first)
	if claimed := w.claimBatch(first); claimed[0].Delivery == nil {
		t.Errorf("the probe: %+v", claimed[0])
	}
}

// A locked endpoint does not delay the claims of others.
func TestClaimWebhooksWaitsForNoEndpoint(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/") // a new one is not at its full width yet, and so is locked
	_, task := w.insert()
	w.dispatch(task)
	deciding, err := w.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deciding.ExecContext(t.Context(), `SELECT FROM webhook_endpoints FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if claimed := w.claimBatch(task); claimed[0] != (models.WebhookClaimed{Locked: true}) {
		t.Errorf("claimed meanwhile: %+v", claimed[0])
	}
	if err := deciding.Rollback(); err != nil {
		t.Fatal(err)
	}
	if claimed := w.claimBatch(task); claimed[0].Delivery == nil {
		t.Errorf("claimed afterwards: %+v", claimed[0])
	}
}
