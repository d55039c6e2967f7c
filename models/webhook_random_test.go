package models_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// Random lives of a few events at one endpoint keep every invariant, with workers that die, are
// late or duplicate, and with crashes that lose leases. Statuses follow the transition table, a
// pending event has exactly one task, bytes never change, attempts only grow, and finally every
// open event is delivered.
func TestWebhookRandomLives(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	rapid.Check(t, func(rt *rapid.T) {
		life := newWebhookLife(w, rt)
		for range rapid.IntRange(5, 40).Draw(rt, "steps") {
			life.step(rt)
			life.check(rt)
		}
		life.finish(rt)
	})
}

// webhookLife is the test's view of some events.
type webhookLife struct {
	*webhooks
	known map[models.WebhookEventID]models.WebhookEvent
	ids   []models.WebhookEventID
	under []models.WebhookDelivery // claimed and not recorded
	tasks []models.TaskID          // that workers may come with, late ones included
}

func newWebhookLife(w *webhooks, t *rapid.T) *webhookLife {
	for _, table := range []string{"webhook_attempts", "webhook_events", "webhook_slots", "webhook_endpoints",
		"outbox"} {
		if _, err := w.DB().ExecContext(w.t.Context(), "DELETE FROM "+table); err != nil {
			t.Fatal(err)
		}
	}
	life := &webhookLife{webhooks: w, known: map[models.WebhookEventID]models.WebhookEvent{}}
	w.put(models.SiteID{}, "https://example.com/")
	return life
}

func (l *webhookLife) step(t *rapid.T) {
	switch rapid.SampledFrom([]string{
		"insert", "insert", "claim", "claim", "claimMany", "claimMany", "record", "record", "recordMany", "die",
		"crash", "advance",
		"redeliver", "put", "delete", "sweep",
	}).Draw(t, "step") {
	case "insert":
		id, task := l.insert()
		l.ids = append(l.ids, id)
		if !task.IsZero() {
			l.tasks = append(l.tasks, task)
		}
	case "claim":
		if len(l.tasks) > 0 {
			d, err := l.tryClaim(rapid.SampledFrom(l.tasks).Draw(t, "task"))
			if err == nil {
				l.under = append(l.under, d)
			}
		}
	case "claimMany":
		l.claimSome(t)
	case "record":
		l.recordOne(t)
	case "recordMany":
		l.recordAll(t)
	case "die":
		expireWebhookLeases(l.t, l.Store) // its record may still come, late
	case "crash": // of Postgres, before the claims were on the disk
		if _, err := l.DB().ExecContext(l.t.Context(),
			"DELETE FROM webhook_slots WHERE token IS NOT NULL"); err != nil {
			t.Fatal(err)
		}
	case "advance":
		modelstest.AdvanceClock(l.t, l.Store, time.Duration(rapid.IntRange(1, 90).Draw(t, "s"))*time.Second)
	case "redeliver":
		if len(l.ids) > 0 {
			_, task, err := l.RedeliverWebhook(l.t.Context(), l.site.OrganisationID,
				rapid.SampledFrom(l.ids).Draw(t, "event"))
			if err != nil {
				t.Fatal(err)
			}
			l.tasks = append(l.tasks, task)
		}
	case "put":
		l.put(models.SiteID{}, rapid.SampledFrom([]string{"https://example.com/", "https://example.com/b"}).
			Draw(t, "url"))
	case "delete":
		_ = l.DeleteWebhookEndpoint(l.t.Context(), l.site.OrganisationID, models.SiteID{})
	case "sweep":
		l.sweep(t)
	}
}

// claimSome dispatches due tasks, and claims some due and some other tasks in one batch.
func (l *webhookLife) claimSome(t *rapid.T) {
	var tasks []models.TaskID
	for _, task := range l.due() {
		tasks = append(tasks, task.ID)
	}
	if len(l.tasks) > 0 {
		tasks = append(tasks, rapid.SliceOfN(rapid.SampledFrom(l.tasks), 0, 3).Draw(t, "late tasks")...)
	}
	for _, d := range l.claimDeliveries(tasks...) {
		if d != nil {
			l.under = append(l.under, *d)
		}
	}
}

// recordAll records every attempt in progress in one batch, with random verdicts.
func (l *webhookLife) recordAll(t *rapid.T) {
	records := make([]*models.WebhookRecord, len(l.under))
	for i, d := range l.under {
		records[i] = result(d, drawVerdict(t))
	}
	l.recordMany(records...)
	l.under = nil
}

func drawVerdict(t *rapid.T) models.WebhookVerdict {
	verdicts := []models.WebhookVerdict{delivered, failed, gone, retryIn(10 * time.Second)}
	return rapid.SampledFrom(verdicts).Draw(t, "verdict")
}

func (l *webhookLife) recordOne(t *rapid.T) {
	if len(l.under) == 0 {
		return
	}
	i := rapid.IntRange(0, len(l.under)-1).Draw(t, "delivery")
	d := l.under[i]
	l.under = append(l.under[:i], l.under[i+1:]...)
	l.record(d, drawVerdict(t))
}

func (l *webhookLife) sweep(t *rapid.T) {
	if _, err := l.ReleaseWebhooks(l.t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (l *webhookLife) check(t *rapid.T) {
	for _, id := range l.ids {
		event, attempts := l.event(id)
		was, ok := l.known[id]
		if ok && was.Status != event.Status && !was.Status.CanBecome(event.Status) {
			t.Fatalf("%s became %s", was.Status, event.Status)
		}
		if ok && (string(was.Body) != string(event.Body) || event.Attempts < was.Attempts ||
			len(attempts) > event.Attempts) {
			t.Fatalf("was %+v, is %+v with %d attempts", was, event, len(attempts))
		}
		l.known[id] = event
	}
	var broken int
	if err := l.DB().NewRaw(`
		SELECT count(*) FROM webhook_events e FULL JOIN outbox o ON o.id = e.task_id AND o.subject_id = e.id
		WHERE (e.status = 'pending') IS DISTINCT FROM (o.id IS NOT NULL)`,
	).Scan(l.t.Context(), &broken); err != nil || broken != 0 {
		t.Fatalf("%d events without their task, or tasks without their event, %v", broken, err)
	}
	if err := l.DB().NewRaw(`
		SELECT count(*) FROM webhook_slots p LEFT JOIN webhook_events e ON e.organisation_id = p.organisation_id
		  AND e.id = p.event_id
		WHERE e.id IS NULL OR p.token IS NULL AND (e.status <> 'pending' OR e.task_id <> p.task_id
			OR e.requested_at <> p.requested_at)`,
	).Scan(l.t.Context(), &broken); err != nil || broken != 0 {
		t.Fatalf("%d slots of nothing, or of a round that is over, %v", broken, err)
	}
}

// finish gives the events a working endpoint and live workers, which deliver every pending event.
func (l *webhookLife) finish(t *rapid.T) {
	l.put(models.SiteID{}, "https://example.com/good")
	expireWebhookLeases(l.t, l.Store)
	for range 2*len(l.ids) + 10 {
		modelstest.AdvanceClock(l.t, l.Store, 20*time.Second)
		l.sweep(t)
		expireLeases(l.t, l.Store)
		if _, err := l.ReclaimLost(l.t.Context(), models.AnyTime, 1000); err != nil {
			t.Fatal(err)
		}
		for _, task := range l.due() {
			if d, err := l.tryClaim(task.ID); err == nil {
				l.record(d, delivered)
			}
		}
	}
	for _, id := range l.ids {
		if event, _ := l.event(id); event.Status == models.WebhookPending {
			t.Fatalf("never delivered: %+v", event)
		}
	}
	if n := tasksLeft(l.t, l.Store); n != 0 {
		t.Fatalf("%d tasks are left", n)
	}
}
