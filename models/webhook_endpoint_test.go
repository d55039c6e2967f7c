package models_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func TestWebhookEndpoints(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	ctx, organisation := t.Context(), w.site.OrganisationID
	id, task := w.insert()
	if w.status(id, models.WebhookUndelivered); !task.IsZero() || tasksLeft(t, w.Store) != 0 {
		t.Errorf("without an endpoint there is a task")
	}
	if _, err := w.WebhookSecrets(ctx, w.ring, organisation); !errors.Is(err, models.ErrNoWebhookSecret) {
		t.Errorf("secrets before the first endpoint: %v", err)
	}
	if w.put(w.site.ID, "https://site.example/") == nil {
		t.Error("the first endpoint brings no secret")
	}
	if w.put(models.SiteID{}, "https://default.example/") != nil {
		t.Error("a later endpoint brings a secret")
	}
	_, task, err := w.RedeliverWebhook(ctx, organisation, id)
	if err != nil {
		t.Fatal(err)
	}
	d := w.claim(task)
	if d.URL != "https://site.example/" || d.EndpointSite != w.site.ID {
		t.Errorf("the override does not win: %+v", d)
	}
	w.record(d, retryIn(time.Minute))
	if err := w.DeleteWebhookEndpoint(ctx, organisation, w.site.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.DeleteWebhookEndpoint(ctx, organisation, w.site.ID); !errors.Is(err, models.ErrNoWebhookEndpoint) {
		t.Errorf("deleted twice: %v", err)
	}
	w.advance(time.Minute)
	if d = w.claim(task); d.URL != "https://default.example/" {
		t.Errorf("the default does not take over: %+v", d)
	}
	w.record(d, retryIn(time.Minute))
	if err := w.DeleteWebhookEndpoint(ctx, organisation, models.SiteID{}); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Minute)
	w.claimNothing(task)
	w.status(id, models.WebhookUndelivered)
	if tasksLeft(t, w.Store) != 0 {
		t.Error("a task is left")
	}
	if _, _, err := w.WebhookEvent(ctx, modelstest.Site(t, w.Store).OrganisationID, id); !errors.Is(err,
		models.ErrNotFound) {
		t.Errorf("another organisation sees the event: %v", err)
	}
}

func TestWebhookBreakerParks(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/hook")
	ids, tasks := w.insertMany(models.WebhookOpensAfter + 5)
	w.due()
	for i := range models.WebhookOpensAfter {
		w.record(w.claim(tasks[i]), retryIn(time.Hour))
	}
	e := w.endpoint(models.SiteID{})
	if e.State() != models.WebhookEndpointPaused || e.Breaker.OpenUntil != webhookStart.Add(models.WebhookOpenFor) {
		t.Fatalf("breaker %+v", e.Breaker)
	}
	rest := tasks[models.WebhookOpensAfter:]
	for _, task := range rest {
		w.claimNothing(task)
	}
	if event, attempts := w.event(ids[models.WebhookOpensAfter]); event.Attempts != 0 || len(attempts) != 0 {
		t.Errorf("parking used up an attempt: %+v", event)
	}
	if n, err := w.ReleaseWebhooks(t.Context()); n != 0 || err != nil {
		t.Errorf("released %d while open, %v", n, err)
	}
	w.advance(models.WebhookOpenFor)
	if n, err := w.ReleaseWebhooks(t.Context()); n != 1 || err != nil {
		t.Fatalf("released %d to probe, %v", n, err)
	}
	due := w.due()
	if len(due) != 1 || due[0].ID != rest[0] {
		t.Fatalf("due %v, want %v", due, rest[0])
	}
	probe := w.claim(due[0].ID)
	w.claimNothing(rest[1]) // one at a time
	if released := w.record(probe, retryIn(time.Hour)); len(released) != 0 {
		t.Errorf("a failed probe released %v", released)
	}
	if b := w.endpoint(models.SiteID{}).Breaker; b.OpenUntil != webhookStart.Add(3*models.WebhookOpenFor) {
		t.Errorf("after a failed probe: %+v", b)
	}
	w.advance(2 * models.WebhookOpenFor)
	if n, err := w.ReleaseWebhooks(t.Context()); n != 1 || err != nil {
		t.Fatalf("released %d to probe, %v", n, err)
	}
	if released := w.record(w.claim(w.due()[0].ID), delivered); len(released) != 2 {
		t.Errorf("a successful probe released %d, want 2", len(released))
	}
	if e := w.endpoint(models.SiteID{}); e.State() != models.WebhookEndpointActive || e.Breaker.Width != 2 {
		t.Errorf("after a successful probe: %+v", e.Breaker)
	}
}

func TestWebhookPutRevivesParked(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/hook")
	for range models.WebhookOpensAfter {
		_, task := w.insert()
		w.record(w.claim(task), retryIn(time.Hour))
	}
	id, task := w.insert()
	w.claimNothing(task)
	w.put(models.SiteID{}, "https://example.com/better")
	if d := w.claim(task); d.URL != "https://example.com/better" || d.Event.ID != id {
		t.Errorf("claimed %+v", d)
	}
}

func TestWebhookWidth(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/hook")
	var under []models.WebhookDelivery
	_, tasks := w.insertMany(models.WebhookFirstWidth + 3)
	w.due()
	for _, task := range tasks[:models.WebhookFirstWidth] {
		under = append(under, w.claim(task))
	}
	for _, task := range tasks[models.WebhookFirstWidth:] {
		w.claimNothing(task)
	}
	released := w.record(under[0], delivered)
	if diff := cmp.Diff(tasks[models.WebhookFirstWidth:][:2], released, cmp.Comparer(func(a, b models.TaskID) bool {
		return a == b
	})); diff != "" {
		t.Errorf("one success makes room for two, the longest waiting (-want +got):\n%s", diff)
	}
}

func TestWebhookGoneForADay(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/hook")
	send := func(v models.WebhookVerdict) models.WebhookEventID {
		id, task := w.insert()
		w.record(w.claim(task), v)
		return id
	}
	w.status(send(gone), models.WebhookFailed)
	w.advance(23 * time.Hour)
	send(delivered) // the row is broken
	send(gone)
	w.advance(24*time.Hour - time.Millisecond)
	send(gone)
	if e := w.endpoint(models.SiteID{}); e.DisabledAt != 0 {
		t.Fatalf("disabled too early: %+v", e)
	}
	w.advance(time.Millisecond)
	send(gone)
	if e := w.endpoint(models.SiteID{}); e.State() != models.WebhookEndpointDisabled ||
		w.alerts("webhookEndpointDisabled") != 1 {
		t.Fatalf("endpoint %+v, %d alerts", e, w.alerts("webhookEndpointDisabled"))
	}
	id, _ := w.insert()
	w.status(id, models.WebhookUndelivered)
	w.put(models.SiteID{}, "https://example.com/hook")
	if w.alerts("webhookEndpointDisabled") != 0 {
		t.Error("the alert is still open")
	}
	if id, task := w.insert(); task.IsZero() {
		t.Errorf("%s has no task", id)
	}
}

func TestTestWebhook(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	ctx, organisation := t.Context(), w.site.OrganisationID
	if _, _, err := w.CreateTestWebhook(ctx, organisation, w.site.ID, models.NewTraceID()); !errors.Is(err,
		models.ErrNoWebhookEndpoint) {
		t.Errorf("without an endpoint: %v", err)
	}
	w.put(models.SiteID{}, "https://example.com/hook")
	w.put(w.site.ID, "https://site.example/")
	id, task, err := w.CreateTestWebhook(ctx, organisation, models.SiteID{}, models.NewTraceID())
	if err != nil {
		t.Fatal(err)
	}
	if due := w.due(); len(due) != 0 {
		t.Errorf("the caller's own attempt is due elsewhere: %v", due)
	}
	d := w.claim(task)
	if d.URL != "https://example.com/hook" || !d.Event.Test || !d.Once {
		t.Errorf("claimed %+v", d)
	}
	w.record(d, failed)
	w.status(id, models.WebhookFailed)
	if w.alerts("webhookFailed") != 0 {
		t.Error("a test raised an alert")
	}
	if a, err := w.WebhookAttempt(ctx, organisation, id, d.Number); err != nil ||
		a.StatusCode != http.StatusInternalServerError {
		t.Errorf("attempt %+v, %v", a, err)
	}
	_, again, err := w.RedeliverWebhook(ctx, organisation, id)
	if err != nil {
		t.Fatal(err)
	}
	if d := w.claim(again); d.Once || d.URL != "https://example.com/hook" {
		t.Errorf("a redelivery is like any other: %+v", d)
	}
}
