package models_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
)

func TestWebhookDelivered(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/hook")
	id, task := w.insert()
	if due := w.due(); len(due) != 1 || due[0].ID != task || due[0].Kind != models.TaskDeliverWebhook {
		t.Fatalf("due: %v", due)
	}
	d := w.claim(task)
	if d.Number != 1 || d.URL != "https://example.com/hook" || d.StartedAt != webhookStart || d.AfterFailure {
		t.Errorf("claimed %+v", d)
	}
	w.claimNothing(task) // another worker
	w.record(d, delivered)
	w.status(id, models.WebhookDelivered)
	w.claimNothing(task) // a late duplicate
	event, attempts := w.event(id)
	if event.Attempts != 1 || event.DeliveredAt != webhookStart || event.NextAttemptAt != 0 ||
		tasksLeft(t, w.Store) != 0 {
		t.Errorf("event %+v, %d tasks left", event, tasksLeft(t, w.Store))
	}
	want := []models.WebhookAttempt{{
		Number: 1, StartedAt: webhookStart, Duration: 7 * time.Millisecond, StatusCode: 204,
		URL: "https://example.com/hook", Address: "192.0.2.1:443", ResponseHead: []byte{},
	}}
	if diff := cmp.Diff(want, attempts); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

func TestWebhookRetryStaysWithRedis(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/hook")
	id, task := w.insert()
	w.due()
	w.record(w.claim(task), retryIn(10*time.Second))
	if event, _ := w.event(id); event.NextAttemptAt != webhookStart+10_000 || event.Status != models.WebhookPending {
		t.Errorf("event %+v", event)
	}
	if backlog := w.backlog(); backlog.InFlight != 0 {
		t.Errorf("a retry that waits counts as in flight: %+v", backlog)
	}
	if due := w.due(); len(due) != 0 {
		t.Errorf("due: %v", due)
	}
	if n, err := w.ReclaimEarly(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("reclaimed %d before its time, %v", n, err)
	}
	w.advance(10 * time.Second) // the clock is moved: Redis would bring the retry only in ten real seconds
	if n, err := w.ReclaimEarly(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("reclaimed %d, %v", n, err)
	}
	if due := w.due(); len(due) != 1 || due[0].Epoch != 2 {
		t.Fatalf("due: %v", due)
	}
	if n, err := w.ReclaimEarly(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("reclaimed %d that are on their way, %v", n, err)
	}
	d := w.claim(task)
	if d.Number != 2 || !d.AfterFailure || d.Failures != 1 {
		t.Errorf("claimed %+v", d)
	}
	if n, err := w.ReclaimEarly(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("reclaimed %d that are being sent, %v", n, err)
	}
}

func (w *webhooks) backlog() models.Backlog {
	w.t.Helper()
	all, err := w.Backlogs(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, b := range all {
		if b.Queue == models.QueueWebhooks {
			return b
		}
	}
	w.t.Fatal("no backlog of webhooks")
	return models.Backlog{}
}

// A retry that Redis delivers early goes out by the database's clock.
func TestWebhookRetryTooEarly(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/hook")
	_, task := w.insert()
	w.due()
	w.record(w.claim(task), retryIn(10*time.Second))
	w.advance(9999 * time.Millisecond)
	w.claimNothing(task)
	if due := w.due(); len(due) != 0 {
		t.Errorf("due: %v", due)
	}
	w.advance(time.Millisecond)
	if due := w.due(); len(due) != 1 {
		t.Errorf("due: %v", due)
	}
}

func TestWebhookWorkerDies(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/hook")
	id, task := w.insert()
	w.due()
	dead := w.claim(task)
	expireWebhookLeases(t, w.Store)
	if n, err := w.ReclaimLost(t.Context(), models.AnyTime, 10); n != 1 || err != nil {
		t.Fatalf("reclaimed %d, %v", n, err)
	}
	if due := w.due(); len(due) != 1 {
		t.Fatalf("due: %v", due)
	}
	heir := w.claim(task)
	if heir.Number != 2 || heir.Failures != 0 || !bytes.Equal(heir.Event.Body, dead.Event.Body) ||
		heir.Event.ID != dead.Event.ID {
		t.Errorf("the heir claimed %+v", heir)
	}
	w.record(dead, retryIn(time.Hour)) // it wakes up: its failure is logged and decides nothing
	if event, attempts := w.event(id); event.NextAttemptAt != webhookStart || len(attempts) != 1 ||
		attempts[0].StatusCode != http.StatusInternalServerError {
		t.Errorf("event %+v, attempts %+v", event, attempts)
	}
	w.record(heir, delivered)
	w.status(id, models.WebhookDelivered)
}

// A dead worker wakes up after its successor has ended the lease.
func TestWebhookLateFailureDecidesNothing(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]models.WebhookVerdict{"failed": failed, "gone": gone,
		"retry": retryIn(time.Hour)} {
		w := newWebhooks(t)
		w.put(models.SiteID{}, "https://example.com/hook")
		id, task := w.insert()
		w.due()
		dead := w.claim(task)
		expireWebhookLeases(t, w.Store)
		w.record(w.claim(task), retryIn(10*time.Second))
		w.record(dead, verdict)
		event, attempts := w.event(id)
		if event.Status != models.WebhookPending || event.NextAttemptAt != webhookStart+10_000 || len(attempts) != 2 {
			t.Errorf("%s: event %+v, attempts %+v", name, event, attempts)
		}
	}
}

func TestWebhookLateSuccessCounts(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/hook")
	id, task := w.insert()
	w.due()
	slow := w.claim(task)
	expireWebhookLeases(t, w.Store)
	heir := w.claim(task)
	w.record(slow, delivered)
	w.status(id, models.WebhookDelivered)
	w.record(heir, retryIn(time.Minute))
	w.status(id, models.WebhookDelivered)
	if _, attempts := w.event(id); len(attempts) != 2 || tasksLeft(t, w.Store) != 0 {
		t.Errorf("attempts %+v, %d tasks", attempts, tasksLeft(t, w.Store))
	}
}

// A late success makes the successor's attempt needless. Its number is not reused, and its result
// is logged.
func TestWebhookNumbersAfterALateSuccess(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/hook")
	id, task := w.insert()
	w.due()
	slow := w.claim(task)
	expireWebhookLeases(t, w.Store)
	heir := w.claim(task)
	w.record(slow, delivered)
	_, again, err := w.RedeliverWebhook(t.Context(), w.site.OrganisationID, id)
	must(t, err)
	next := w.claim(again)
	if next.Number != heir.Number+1 {
		t.Fatalf("the attempt after number %d has number %d", heir.Number, next.Number)
	}
	w.record(next, delivered)
	w.record(heir, retryIn(time.Minute))
	event, attempts := w.event(id)
	if event.Status != models.WebhookDelivered || event.Attempts != 3 || len(attempts) != 3 ||
		attempts[1].StatusCode != http.StatusInternalServerError ||
		attempts[2].StatusCode != http.StatusNoContent {
		t.Errorf("event %+v, attempts %+v", event, attempts)
	}
}

// After a crash loses a claim, two attempts have one number. The log keeps the successful one.
func TestWebhookLogKeepsTheSuccess(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/hook")
	id, task := w.insert()
	w.due()
	forgotten := w.claim(task)
	_, err := w.DB().ExecContext(t.Context(), "DELETE FROM webhook_slots")
	must(t, err)
	w.record(w.claim(task), delivered)
	w.record(forgotten, retryIn(time.Minute))
	if _, attempts := w.event(id); len(attempts) != 1 || attempts[0].StatusCode != http.StatusNoContent ||
		attempts[0].Error != "" {
		t.Errorf("attempts %+v", attempts)
	}
}

// The log names the endpoint of an interrupted attempt, even if that endpoint is gone.
func TestWebhookInterruptedAttemptSaysWhere(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://default.example/")
	w.put(w.site.ID, "https://own.example/")
	id, task := w.insert()
	w.claim(task)
	must(t, w.DeleteWebhookEndpoint(t.Context(), w.site.OrganisationID, w.site.ID))
	expireWebhookLeases(t, w.Store)
	w.claim(task)
	if _, attempts := w.event(id); len(attempts) != 1 || attempts[0].EndpointSite != w.site.ID ||
		attempts[0].URL != "https://own.example/" {
		t.Errorf("attempts %+v", attempts)
	}
}

// An interrupted attempt is logged, also if its event is parked or has no endpoint any more.
func TestWebhookWorkerDiesAndItsEventWaits(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]string{
		"parked":   "UPDATE webhook_endpoints SET failures = 5, openings = 1, open_until = svc_now() + 60000",
		"given up": "UPDATE webhook_endpoints SET disabled_at = svc_now()",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWebhooks(t)
			w.put(models.SiteID{}, "https://example.com/hook")
			id, task := w.insert()
			w.claim(task)
			expireWebhookLeases(t, w.Store)
			if _, err := w.DB().ExecContext(t.Context(), endpoint); err != nil {
				t.Fatal(err)
			}
			w.claimNothing(task)
			_, attempts := w.event(id)
			if len(attempts) != 1 || !strings.HasPrefix(attempts[0].Error, "interrupted") {
				t.Errorf("attempts %+v", attempts)
			}
		})
	}
}

func expireWebhookLeases(t testing.TB, store *models.Store) {
	t.Helper()
	if _, err := store.DB().ExecContext(t.Context(),
		"UPDATE webhook_slots SET until = clock_timestamp() WHERE token IS NOT NULL"); err != nil {
		t.Fatal(err)
	}
	expireLeases(t, store)
}

func TestWebhookFailsForGood(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/hook")
	id, task := w.insert()
	w.record(w.claim(task), failed)
	w.status(id, models.WebhookFailed)
	if w.alerts("webhookFailed") != 1 || tasksLeft(t, w.Store) != 0 {
		t.Errorf("%d alerts, %d tasks", w.alerts("webhookFailed"), tasksLeft(t, w.Store))
	}
	for _, want := range []int{2, 3} { // works every time
		event, task, err := w.RedeliverWebhook(t.Context(), w.site.OrganisationID, id)
		if err != nil || event.Status != models.WebhookPending || task.IsZero() {
			t.Fatalf("redelivery: %+v, %v", event, err)
		}
		d := w.claim(task)
		if d.Number != want || d.Failures != 0 {
			t.Errorf("claimed %+v", d)
		}
		w.record(d, delivered)
	}
	if w.alerts("webhookFailed") != 0 {
		t.Errorf("%d alerts are open", w.alerts("webhookFailed"))
	}
}

func TestWebhookRedeliveryDuringAnAttempt(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/hook")
	id, task := w.insert()
	w.due()
	d := w.claim(task)
	_, again, err := w.RedeliverWebhook(t.Context(), w.site.OrganisationID, id)
	if err != nil {
		t.Fatal(err)
	}
	if due := w.due(); len(due) != 1 || due[0].ID != again {
		t.Fatalf("due: %v", due)
	}
	w.claimNothing(again) // waits for the one under way
	w.record(d, delivered)
	w.status(id, models.WebhookPending)
	if due := w.due(); len(due) != 1 || due[0].ID != again {
		t.Fatalf("due: %v", due)
	}
	w.record(w.claim(again), delivered)
	w.status(id, models.WebhookDelivered)
	if _, attempts := w.event(id); len(attempts) != 2 || tasksLeft(t, w.Store) != 0 {
		t.Errorf("attempts %+v, %d tasks", attempts, tasksLeft(t, w.Store))
	}
}

func TestOneWebhookEventPerIntent(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	push := w.push()
	results := race(20, func(int) string {
		_, _, err := w.InsertWebhookEvent(t.Context(), w.site.OrganisationID, models.NewTraceID(), push)
		return fmt.Sprint(err == nil)
	})
	if results["true"] != 1 {
		t.Errorf("written: %v", results)
	}
}

// A duplicated task may find its event parked, with capacity. If its worker dies, the event becomes
// due, not parked.
func TestParkedWebhookClaimedByALateTask(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/hook")
	_, tasks := w.insertMany(models.WebhookFirstWidth + 1)
	w.due()
	late := tasks[models.WebhookFirstWidth]
	for _, task := range tasks[:models.WebhookFirstWidth] {
		w.claim(task)
	}
	w.claimNothing(late)
	expireWebhookLeases(t, w.Store)
	w.claim(late)
	expireWebhookLeases(t, w.Store)
	if _, err := w.ReclaimLost(t.Context(), models.AnyTime, 1000); err != nil {
		t.Fatal(err)
	}
	if due := w.due(); !slices.ContainsFunc(due, func(d models.Task) bool { return d.ID == late }) {
		t.Errorf("the event of a dead worker is not due; due are %v", due)
	}
}
