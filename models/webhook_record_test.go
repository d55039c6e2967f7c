package models_test

import (
	"net/http"
	"testing"
	"time"

	"partnerbilling/models"
)

// One transaction records successes and failures, of workers with and without the lease.
func TestRecordWebhooksTogether(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	var ids []models.WebhookEventID
	var tasks []models.TaskID
	for range 4 {
		id, task := w.insert()
		ids, tasks = append(ids, id), append(tasks, task)
	}
	w.dispatch(tasks...)
	verdicts := []models.WebhookVerdict{delivered, retryIn(time.Minute), failed, retryIn(time.Minute)}
	var records []models.WebhookRecord
	for i, d := range w.claimMany(tasks...) {
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
