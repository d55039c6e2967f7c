package models_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// actOf returns a context with an operator's act.
func actOf(t *testing.T, name models.ActName, reason string) context.Context {
	t.Helper()
	return models.WithAct(models.WithTraceID(t.Context(), models.NewTraceID()), &models.Act{
		Name: name, Reason: reason,
		Actor: models.Actor{Kind: models.ActorOperator, Name: "jane", Origin: "jane@host"},
	})
}

// A pause needs a reason, exists once, and leaves an entry with operator and reason.
func TestPauses(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	organisation := modelstest.Site(t, store).OrganisationID
	pause := func(ctx context.Context) error { return store.PauseDebits(ctx, organisation) }
	resume := func(ctx context.Context) error { _, err := store.ResumeDebits(ctx, organisation); return err }
	queue := func(do func(context.Context, models.Queue) error, q models.Queue) func(context.Context) error {
		return func(ctx context.Context) error { return do(ctx, q) }
	}
	const debits, sweeps = models.QueueDebits, models.QueueSweeps
	steps := []struct {
		name   string
		act    models.ActName
		reason string
		do     func(context.Context) error
		want   error
		code   string
	}{
		{"pause without a reason", models.ActPauseDebits, "", pause, models.ErrReason, "reasonRequired"},
		{"pause with a control character", models.ActPauseDebits, "a\nb", pause, models.ErrReason, "reasonRequired"},
		{"pause for a long reason", models.ActPauseDebits, strings.Repeat("x", 129), pause, models.ErrReason, "reasonRequired"},
		{"resume what runs", models.ActResumeDebits, "why", resume, models.ErrNotPaused, "notPaused"},
		{"pause", models.ActPauseDebits, "partner asked", pause, nil, ""},
		{"pause again", models.ActPauseDebits, "why", pause, models.ErrPaused, "alreadyPaused"},
		{"pause a queue", models.ActPauseQueue, "rail down", queue(store.PauseQueue, debits), nil, ""},
		{"pause it again", models.ActPauseQueue, "why", queue(store.PauseQueue, debits), models.ErrPaused, "alreadyPaused"},
		{"pause sweeps", models.ActPauseQueue, "why", queue(store.PauseQueue, sweeps), models.ErrNotPausable, "notPausable"},
		{"resume sweeps", models.ActResumeQueue, "why", queue(store.ResumeQueue, sweeps), models.ErrNotPausable, "notPausable"},
		{"resume without a reason", models.ActResumeDebits, "", resume, models.ErrReason, "reasonRequired"},
	}
	for _, step := range steps {
		ctx := actOf(t, step.act, step.reason)
		err := step.do(ctx)
		if !errors.Is(err, step.want) {
			t.Fatalf("%s: %v, want %v", step.name, err, step.want)
		}
		must(t, store.EndAct(ctx, err))
		e := newestEntry(t, store)
		if e.Act != step.act || e.Code != step.code || e.Actor != "jane" || e.Subject == "" {
			t.Errorf("%s: entry %+v", step.name, e)
		}
		if err == nil && !strings.Contains(string(e.Detail), step.reason) {
			t.Errorf("%s: the entry's detail %s lacks the reason", step.name, e.Detail)
		}
	}
	pauses, err := store.Pauses(t.Context())
	must(t, err)
	if len(pauses) != 2 || pauses[0].OrganisationID != organisation || pauses[0].By != "jane" ||
		pauses[0].Reason != "partner asked" || pauses[1].Queue != debits || pauses[1].Reason != "rail down" {
		t.Errorf("pauses %+v", pauses)
	}
	must(t, resume(actOf(t, models.ActResumeDebits, "done")))
	must(t, store.ResumeQueue(actOf(t, models.ActResumeQueue, "done"), debits))
	if pauses, err = store.Pauses(t.Context()); len(pauses) != 0 || err != nil {
		t.Errorf("pauses after their end: %+v, %v", pauses, err)
	}
	if err := store.PauseDebits(t.Context(), models.OrganisationID{1}); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("an unknown organisation: %v", err)
	}
}

func newestEntry(t *testing.T, store *models.Store) models.AuditEntry {
	t.Helper()
	entries, err := store.AuditLog(t.Context(), models.AuditFilter{}, models.AuditPosition{}, 1)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	return entries[0]
}

// No claim takes a task of a paused queue: neither a poll, nor that after a commit. Other queues go
// on.
func TestPausedQueueDispatchesNothing(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	must(t, store.PauseQueue(t.Context(), models.QueueDebits))
	bounds := models.Dispatch{Queue: models.QueueDebits, Limit: 10, InFlight: 10}
	done := modelstest.Submit(t, store, modelstest.Batch(site, "batch", "ada"))
	count := func(want int) {
		t.Helper()
		polled, err := store.ClaimDue(t.Context(), bounds)
		must(t, err)
		named, err := store.ClaimTasks(t.Context(), done.Tasks, bounds, models.Dispatch{InFlight: 10, Limit: 10})
		must(t, err)
		if len(polled)+len(named) != want {
			t.Errorf("claims took %d tasks, want %d", len(polled)+len(named), want)
		}
	}
	count(0)
	intent := modelstest.Intent(t, store, site.ID, 500)
	modelstest.Pay(t, store, intent, models.Party{CustomerID: "ada", AgreementID: "agreement"})
	other, err := store.ClaimDue(t.Context(), models.Dispatch{Queue: models.QueueCheckout, Limit: 10, InFlight: 10})
	if err != nil || len(other) != 1 {
		t.Errorf("checkout: %d tasks, %v", len(other), err)
	}
	must(t, store.ResumeQueue(t.Context(), models.QueueDebits))
	count(1)
}
