package models_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"partnerbilling/models"
)

// slots returns the numbers of parked events, and of released events that no worker has leased yet.
func (w *webhooks) slots() (waiting, released int) {
	w.t.Helper()
	must(w.t, w.DB().NewRaw(`
SELECT count(*) FILTER (WHERE until IS NULL), count(*) FILTER (WHERE until > clock_timestamp() AND token IS NULL)
	FROM webhook_slots`,
	).Scan(w.t.Context(), &waiting, &released))
	return waiting, released
}

func (w *webhooks) wantSlots(when string, waiting, released int) {
	w.t.Helper()
	if gotWaiting, gotReleased := w.slots(); gotWaiting != waiting || gotReleased != released {
		w.t.Errorf("%s: %d wait and %d are released, want %d and %d", when, gotWaiting, gotReleased, waiting, released)
	}
}

func (w *webhooks) release(want int) {
	w.t.Helper()
	if n, err := w.ReleaseWebhooks(w.t.Context()); n != want || err != nil {
		w.t.Errorf("released %d, %v; want %d", n, err, want)
	}
}

// overfill inserts n events of a new endpoint, which takes models.WebhookFirstWidth of them and
// parks the rest.
func (w *webhooks) overfill(n int) (tasks []models.TaskID, sent []*models.WebhookDelivery) {
	w.t.Helper()
	w.put(models.SiteID{}, "https://one.example/")
	for range n {
		_, task := w.insert()
		tasks = append(tasks, task)
	}
	w.dispatch(tasks...)
	for _, d := range w.claimDeliveries(tasks...) {
		if d != nil {
			sent = append(sent, d)
		}
	}
	w.wantSlots("more events than capacity", n-models.WebhookFirstWidth, 0)
	return tasks[models.WebhookFirstWidth:], sent
}

// A released event occupies capacity at once: neither a later release nor a new event takes it.
func TestReleaseTakesCapacity(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	waiting, sent := w.overfill(12)
	w.recordDelivered(sent[:2]...)
	const free = 4 // two ended deliveries, and two more for their success
	w.wantSlots("after two successes", 8-free, free)
	w.release(0)
	_, newcomer := w.insert()
	w.dispatch(newcomer)
	if claimed := w.claimBatch(newcomer); claimed[0] != (models.WebhookClaimed{}) || !w.parked(newcomer) {
		t.Errorf("a newcomer: %+v", claimed[0])
	}
	w.dispatch(waiting[:free]...)
	for i, d := range w.claimDeliveries(waiting[:free]...) {
		if d == nil {
			t.Errorf("event %d was released and not claimed", i)
		}
	}
	w.wantSlots("all released events are in flight", 8-free+1, 0)
}

// A released event that no worker leases in time loses its slot, and is released again later.
func TestReleasedAndNotLeasedInTime(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	waiting, sent := w.overfill(6)
	w.recordDelivered(sent...)
	w.wantSlots("after all successes", 0, 2)
	_, err := w.DB().ExecContext(t.Context(), "UPDATE webhook_endpoints SET width = 1")
	must(t, err)
	_, err = w.DB().ExecContext(t.Context(), "UPDATE webhook_slots SET until = clock_timestamp()")
	must(t, err)
	w.dispatch(waiting...)
	if claimed := w.claimBatch(waiting...); claimed[0].Delivery == nil || !w.parked(waiting[1]) {
		t.Errorf("claimed late: %+v", claimed)
	}
	w.wantSlots("one is sent", 1, 0)
}

// An endpoint whose breaker opened after the release takes no released events.
func TestReleasedAndThenOpened(t *testing.T) {
	t.Parallel()
	for name, claim := range map[string]func(*webhooks, models.TaskID){
		"alone":     func(w *webhooks, task models.TaskID) { w.claimNothing(task) },
		"with many": func(w *webhooks, task models.TaskID) { w.claimBatch(task) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWebhooks(t)
			waiting, sent := w.overfill(5)
			w.recordDelivered(sent...)
			w.wantSlots("released", 0, 1)
			_, err := w.DB().ExecContext(t.Context(), "UPDATE webhook_endpoints SET open_until = svc_now() + 60000")
			must(t, err)
			w.dispatch(waiting...)
			claim(w, waiting[0])
			w.wantSlots("closed", 1, 0)
			if due := w.due(); len(due) != 0 {
				t.Errorf("%d tasks go out to a closed endpoint", len(due))
			}
			w.advance(time.Minute)
			w.release(1) // the probe
			w.release(0)
		})
	}
}

// If a Site gets its own endpoint, events released by the default go to it, within its capacity.
func TestReleasedByAnotherEndpoint(t *testing.T) {
	t.Parallel()
	for name, claim := range map[string]func(*webhooks, models.TaskID) models.WebhookDelivery{
		"alone":     func(w *webhooks, task models.TaskID) models.WebhookDelivery { return w.claim(task) },
		"with many": func(w *webhooks, task models.TaskID) models.WebhookDelivery { return *w.claimDeliveries(task)[0] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWebhooks(t)
			waiting, sent := w.overfill(5)
			w.recordDelivered(sent...)
			w.wantSlots("released", 0, 1)
			w.put(w.site.ID, "https://own.example/")
			w.dispatch(waiting...)
			if d := claim(w, waiting[0]); d.URL != "https://own.example/" {
				t.Errorf("sent to %s", d.URL)
			}
			var elsewhere int
			must(t, w.DB().NewRaw("SELECT count(*) FROM webhook_slots WHERE endpoint_site_id <> ?", w.site.ID).
				Scan(t.Context(),
					&elsewhere))
			if elsewhere != 0 {
				t.Error("it has its slot at the default still")
			}
		})
	}
}

func TestAuditOfSlots(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.overfill(models.WebhookFirstWidth + 1)
	for _, c := range []struct {
		breaks string
		found  int
	}{
		{"SELECT 1", 0},
		{"UPDATE webhook_slots SET task_id = gen_random_uuid() WHERE until IS NULL", 1},
		{"DELETE FROM webhook_events WHERE id IN (SELECT event_id FROM webhook_slots WHERE until IS NULL)", 1},
	} {
		_, err := w.DB().ExecContext(t.Context(), c.breaks)
		must(t, err)
		violations, err := w.Audit(t.Context(), false)
		must(t, err)
		if found := slices.DeleteFunc(violations, func(v models.Violation) bool {
			return !strings.HasPrefix(v.Check, "a parked event is a pending")
		}); len(found) != c.found {
			t.Errorf("%s: %+v", c.breaks, violations)
		}
	}
}

// Parked events become due again after parkedFor. They are parked again in one batch, and nothing
// else is written.
func TestParkedAskTogether(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	waiting, _ := w.overfill(models.WebhookFirstWidth + 20)
	w.advance(time.Hour)
	if due := w.due(); len(due) != len(waiting) {
		t.Fatalf("%d of %d ask again", len(due), len(waiting))
	}
	for i, claimed := range w.claimBatch(waiting...) {
		if claimed != (models.WebhookClaimed{}) || !w.parked(waiting[i]) {
			t.Errorf("event %d: %+v", i, claimed)
		}
	}
	w.wantSlots("afterwards", len(waiting), 0)
	if due := w.due(); len(due) != 0 {
		t.Errorf("%d ask again at once", len(due))
	}
	var written int
	must(t, w.DB().
		NewRaw(
			"SELECT count(*) FROM webhook_slots WHERE until IS NULL AND xmin::text <> (SELECT min(xmin::text) FROM webhook_slots WHERE until IS NULL)").
		Scan(t.Context(), &written))
	if written != 0 {
		t.Errorf("%d slots were written again", written)
	}
}

// A parked event is claimed if its endpoint has capacity, by any task of it.
func TestParkedEventWithCapacity(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	waiting, _ := w.overfill(models.WebhookFirstWidth + 1)
	_, err := w.DB().ExecContext(t.Context(), "UPDATE webhook_endpoints SET width = ?", models.WebhookFullWidth)
	must(t, err)
	w.advance(time.Hour)
	w.dispatch(waiting...)
	if claimed := w.claimBatch(waiting...); claimed[0].Delivery == nil {
		t.Errorf("claimed %+v", claimed[0])
	}
	w.wantSlots("afterwards", 0, 0)
}

// A batched claim does not park an event that a worker leased after the claim read it.
func TestConcurrentClaimsParkNothingThatIsSent(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	for range 30 {
		tasks := make([]models.TaskID, 8) // twice what the endpoint takes
		for i := range tasks {
			_, tasks[i] = w.insert()
		}
		w.dispatch(tasks...)
		var mu sync.Mutex
		var sent []models.WebhookDelivery
		var workers sync.WaitGroup
		for n := range 4 {
			workers.Go(func() {
				got, err := w.claimRacing(n%2 == 0, tasks)
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, got...)
				if err != nil {
					t.Error(err)
				}
			})
		}
		workers.Wait()
		for _, d := range sent {
			var is bool
			must(t, w.DB().NewRaw("SELECT token IS NOT NULL FROM webhook_slots WHERE event_id = ?",
				d.Event.ID).Scan(t.Context(), &is))
			if !is {
				t.Fatal("an event that is being sent waits")
			}
		}
		for _, table := range []string{"webhook_slots", "webhook_attempts", "webhook_events", "outbox"} {
			_, err := w.DB().ExecContext(t.Context(), "DELETE FROM "+table)
			must(t, err)
		}
	}
}
