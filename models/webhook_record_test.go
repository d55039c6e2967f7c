package models_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"partnerbilling/models"
)

// One transaction records successes and failures, of workers with and without the lease.
func TestRecordWebhooksTogether(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	ids, tasks := w.insertMany(4)
	w.dispatch(tasks...)
	verdicts := []models.WebhookVerdict{delivered, retryIn(time.Minute), failed, retryIn(time.Minute)}
	var records []*models.WebhookRecord
	for i, d := range w.claimDeliveries(tasks...) {
		records = append(records, result(*d, verdicts[i]))
	}
	lost := ids[3]
	_, err := w.DB().ExecContext(t.Context(),
		"UPDATE webhook_slots SET token = gen_random_uuid() WHERE event_id = ?", lost)
	must(t, err)
	w.recordMany(records...)
	for i, want := range []models.WebhookStatus{
		models.WebhookDelivered, models.WebhookPending, models.WebhookFailed, models.WebhookPending,
	} {
		event, attempts := w.event(ids[i])
		if event.Status != want || event.Attempts != 1 || len(attempts) != 1 ||
			attempts[0].StatusCode != records[i].Attempt.StatusCode {
			t.Errorf("event %d: %+v with attempts %+v", i, event, attempts)
		}
	}
	if event, _ := w.event(ids[1]); event.NextAttemptAt != webhookStart.Add(time.Minute) {
		t.Errorf("the retry is due at %d", event.NextAttemptAt)
	}
	if event, _ := w.event(lost); event.NextAttemptAt != webhookStart {
		t.Error("a failure without the lease postponed the event")
	}
	want := models.WebhookBreaker{Failures: 3, Width: 1}
	if got := w.endpoint(models.SiteID{}).Breaker; got != want {
		t.Errorf("breaker %+v, want %+v", got, want)
	}
	if n := tasksLeft(t, w.Store); n != 2 {
		t.Errorf("%d tasks are left", n)
	}
	if n := w.alerts("webhookFailed"); n != 1 {
		t.Errorf("%d alerts", n)
	}
}

// A batch may record two attempts of one event: a worker without the lease, and its successor.
func TestRecordWebhooksOfOneEvent(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	id, task := w.insert()
	first := w.claim(task)
	expireWebhookLeases(t, w.Store)
	second := w.claim(task)
	w.recordMany(result(first, retryIn(time.Minute)), result(second, delivered))
	event, attempts := w.event(id)
	if event.Status != models.WebhookDelivered || event.Attempts != 2 || len(attempts) != 2 ||
		attempts[0].StatusCode != http.StatusInternalServerError || attempts[1].StatusCode != http.StatusNoContent {
		t.Errorf("%+v with attempts %+v", event, attempts)
	}
	if n := tasksLeft(t, w.Store); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
}

// Tasks are postponed in the order of their ids, not of their events. The redelivery of the older
// event has the later task.
func TestRecordWebhooksLocksTasksInOrder(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	older, failing := w.insert()
	w.dispatch(failing)
	w.record(w.claim(failing), failed)
	_, first := w.insert()
	_, second, err := w.RedeliverWebhook(t.Context(), w.site.OrganisationID, older)
	must(t, err)
	w.dispatch(first, second)
	var records []*models.WebhookRecord
	for _, d := range w.claimDeliveries(first, second) {
		records = append(records, result(*d, retryIn(time.Minute)))
	}
	wantLockedInOrder(t, w.Store, first, second, func() error {
		_, _, err := w.RecordWebhooks(t.Context(), records, 0)
		return err
	})
}

// parkBehind inserts more events than a new endpoint takes at once, and claims their attempts. It
// returns the deliveries, and the tasks of the n events that are parked behind them.
func (w *webhooks) parkBehind(n int) (deliveries []*models.WebhookDelivery, parked []models.TaskID) {
	w.t.Helper()
	w.put(models.SiteID{}, "https://one.example/")
	_, tasks := w.insertMany(models.WebhookFirstWidth + n)
	w.dispatch(tasks...)
	return w.claimDeliveries(tasks...)[:models.WebhookFirstWidth], tasks[models.WebhookFirstWidth:]
}

// mostClaims is how many released tasks recordAndClaim claims.
const mostClaims = 64

// recordAndClaim records a success and returns the released tasks that it claims.
func (w *webhooks) recordAndClaim(d *models.WebhookDelivery) []models.Task {
	w.t.Helper()
	claimed, _, err := w.RecordWebhooks(w.t.Context(), []*models.WebhookRecord{result(*d, delivered)}, mostClaims)
	if err != nil {
		w.t.Fatalf("record: %v", err)
	}
	return claimed
}

// A worker that records an attempt may claim the tasks of the events that it releases. No
// dispatcher claims them while the worker's lease lasts; if the worker dies, they are due again.
func TestRecordWebhooksClaimsReleased(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	deliveries, parked := w.parkBehind(3)
	taken := w.recordAndClaim(deliveries[0])
	if len(taken) != 2 {
		t.Fatalf("claimed %+v, want two tasks", taken)
	}
	for _, task := range taken {
		if !slices.Contains(parked[:2], task.ID) {
			t.Errorf("claimed task %s, which was not the longest parked", task.ID)
		}
		if task.Kind != models.TaskDeliverWebhook || task.OrganisationID != w.site.OrganisationID || task.Epoch < 2 {
			t.Errorf("claimed %+v", task)
		}
	}
	if due := w.due(); len(due) != 0 {
		t.Errorf("a dispatcher claimed %+v", due)
	}
	released := w.record(w.claim(taken[0].ID), delivered)
	if len(released) != 1 || released[0] != parked[2] {
		t.Errorf("the next record released %v, want the last parked event", released)
	}
	w.due()
	expireLeases(t, w.Store)
	if _, err := w.ReclaimLost(t.Context(), models.AnyTime, 100); err != nil {
		t.Fatal(err)
	}
	isLost := func(task models.Task) bool { return task.ID == taken[1].ID }
	if due := w.due(); !slices.ContainsFunc(due, isLost) {
		t.Errorf("the task of the dead worker is not due: %+v", due)
	}
}

// While the queue is paused, a record claims nothing: the released tasks wait for the resumption.
func TestPausedQueueRunsNoReleasedWebhooks(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	deliveries, parked := w.parkBehind(2)
	must(t, w.PauseQueue(t.Context(), models.QueueWebhooks))
	if claimed := w.recordAndClaim(deliveries[0]); len(claimed) != 0 {
		t.Errorf("claimed %+v under a pause", claimed)
	}
	if due := w.due(); len(due) != 0 {
		t.Errorf("dispatched %+v under a pause", due)
	}
	must(t, w.ResumeQueue(t.Context(), models.QueueWebhooks))
	if due := w.due(); len(due) != len(parked) {
		t.Errorf("after the resumption %d of %d tasks are due", len(due), len(parked))
	}
}

// One record claims a bounded number of tasks. The others are due for any worker.
func TestRecordClaimsFewOfMany(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	const parked = 100
	deliveries, _ := w.parkBehind(parked)
	_, err := w.DB().ExecContext(t.Context(), "UPDATE webhook_endpoints SET width = ?", models.WebhookFullWidth)
	must(t, err)
	if claimed := w.recordAndClaim(deliveries[0]); len(claimed) != mostClaims {
		t.Errorf("claimed %d, want %d", len(claimed), mostClaims)
	}
	if due := w.due(); len(due) != parked-mostClaims {
		t.Errorf("%d are due, want %d", len(due), parked-mostClaims)
	}
}
