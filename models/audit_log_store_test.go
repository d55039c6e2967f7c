package models_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// actBy returns a context with an act of an operator.
func actBy(ctx context.Context, operator string, name models.ActName) context.Context {
	return models.WithAct(models.WithTraceID(ctx, models.NewTraceID()), &models.Act{Name: name,
		Actor: models.Actor{Kind: models.ActorOperator, Name: operator, Origin: "root@host"}})
}

func auditLog(t testing.TB, store *models.Store, filter models.AuditFilter) []models.AuditEntry {
	t.Helper()
	entries, err := store.AuditLog(t.Context(), filter, models.AuditPosition{}, 1000)
	must(t, err)
	return entries
}

func TestActIsRecordedWithItsEffect(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	client := newClient(t, store)
	if entries := auditLog(t, store, models.AuditFilter{}); len(entries) != 0 {
		t.Fatalf("calls without an act left %v", entries)
	}
	ctx := actBy(t.Context(), "jane", models.ActDisableClient)
	must(t, store.DisableClient(ctx, client.ID))
	must(t, store.EndAct(ctx, nil)) // recorded already
	entries := auditLog(t, store, models.AuditFilter{})
	if len(entries) != 1 {
		t.Fatalf("%d entries: %+v", len(entries), entries)
	}
	got := entries[0]
	if got.ID.IsZero() || got.At == 0 || time.Since(got.RecordedAt).Abs() > time.Minute {
		t.Errorf("id %s, at %d, recorded at %s", got.ID, got.At, got.RecordedAt)
	}
	want := models.AuditEntry{
		ID: got.ID, At: got.At, RecordedAt: got.RecordedAt, ActorKind: models.ActorOperator, Actor: "jane",
		Origin: "root@host", Act: models.ActDisableClient, SubjectKind: models.SubjectClient,
		Subject: client.ID.String(), OrganisationID: client.OrganisationID, Detail: json.RawMessage("{}"),
		Outcome: models.ActDone, TraceID: models.TraceIDFrom(ctx),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
}

// An act whose entry cannot be written has no effect.
func TestActFailsWithoutItsEntry(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	client := newClient(t, store)
	modelstest.RefuseAuditEntries(t, store)
	if err := store.DisableClient(actBy(t.Context(), "jane", models.ActDisableClient), client.ID); err == nil {
		t.Error("the act succeeded")
	}
	got, err := store.Client(t.Context(), client.ID)
	must(t, err)
	if got.Disabled() {
		t.Error("the client is disabled, without an entry")
	}
	must(t, store.DisableClient(t.Context(), client.ID)) // not an act
}

func TestRefusedAndFailedActsAreRecorded(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	client := newClient(t, store)
	tests := []struct {
		do      func(ctx context.Context) error
		outcome models.ActOutcome
		code    string
		subject string
	}{
		{func(ctx context.Context) error { return store.DisableClient(ctx, models.ClientID{1}) },
			models.ActRefused, "notFound", models.ClientID{1}.String()},
		{func(ctx context.Context) error { return store.SetClientScopes(ctx, client.ID, nil) },
			models.ActRefused, "scopesNotAllowed", client.ID.String()},
		{func(ctx context.Context) error {
			_, err := store.ResumeRestored(ctx)
			return err
		}, models.ActRefused, "nothingHeld", ""},
		{func(context.Context) error { return models.ErrUnavailable }, models.ActFailed, "unavailable", ""},
		{func(context.Context) error { return context.Canceled }, models.ActFailed, "interrupted", ""},
		{func(context.Context) error { return errors.New("a fault") }, models.ActFailed, "internal", ""},
		{func(context.Context) error { return nil }, models.ActDone, "", ""}, // an act of no transaction
	}
	for i, tt := range tests {
		ctx, cancel := context.WithCancel(actBy(t.Context(), "jane", models.ActDisableClient))
		err := tt.do(ctx)
		cancel() // Ctrl-C ends the command, not the recording
		must(t, store.EndAct(ctx, err))
		entries := auditLog(t, store, models.AuditFilter{})
		if len(entries) != i+1 {
			t.Fatalf("%d entries after %d acts", len(entries), i+1)
		}
		if e := entries[0]; e.Outcome != tt.outcome || e.Code != tt.code || e.Subject != tt.subject {
			t.Errorf("act %d: %s %q of %q, want %s %q of %q", i, e.Outcome, e.Code, e.Subject, tt.outcome, tt.code,
				tt.subject)
		}
	}
}

func TestAuditLogIsAppendOnly(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	_, err := store.CreateOrganisation(actBy(t.Context(), "jane", models.ActAddOrganisation), "Harbour Power")
	must(t, err)
	before := auditLog(t, store, models.AuditFilter{})
	for _, statement := range []string{
		"UPDATE audit_log SET actor = 'john'", "DELETE FROM audit_log", "TRUNCATE audit_log",
		"DELETE FROM audit_log WHERE false", "SET session_replication_role = replica; DELETE FROM audit_log",
		"INSERT INTO audit_log SELECT * FROM audit_log ON CONFLICT (id) DO UPDATE SET actor = 'john'",
	} {
		if _, err := store.DB().ExecContext(t.Context(), statement); err == nil ||
			!strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if diff := cmp.Diff(before, auditLog(t, store, models.AuditFilter{})); diff != "" {
		t.Errorf("the log changed:\n%s", diff)
	}
	var granted []string
	must(t, store.DB().NewRaw(`SELECT DISTINCT a.privilege_type FROM pg_class c, aclexplode(c.relacl) a
WHERE c.relname = 'audit_log' AND a.privilege_type IN ('UPDATE', 'DELETE', 'TRUNCATE')`).Scan(t.Context(), &granted))
	if len(granted) > 0 {
		t.Errorf("granted: %v", granted)
	}
}

func TestAuditLogFilters(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, 1_000_000)
	client := newClient(t, store)
	_, err := store.AddClientSecret(actBy(t.Context(), "jane", models.ActAddClientSecret), client.ID)
	must(t, err)
	modelstest.AdvanceClock(t, store, time.Second)
	must(t, store.DisableClient(actBy(t.Context(), "john", models.ActDisableClient), client.ID))
	modelstest.AdvanceClock(t, store, time.Second)
	_, err = store.CreateOrganisation(actBy(t.Context(), "jane", models.ActAddOrganisation), "Hill Water")
	must(t, err)
	const added, disabled, created = models.ActAddClientSecret, models.ActDisableClient, models.ActAddOrganisation
	tests := []struct {
		filter models.AuditFilter
		want   []models.ActName
	}{
		{models.AuditFilter{}, []models.ActName{created, disabled, added}},
		{models.AuditFilter{Actor: "jane"}, []models.ActName{created, added}},
		{models.AuditFilter{Act: disabled}, []models.ActName{disabled}},
		{models.AuditFilter{OrganisationID: client.OrganisationID}, []models.ActName{disabled, added}},
		{models.AuditFilter{Subject: client.ID.String(), Actor: "jane"}, []models.ActName{added}},
		{models.AuditFilter{From: 1_001_000}, []models.ActName{created, disabled}},
		{models.AuditFilter{To: 1_001_000}, []models.ActName{added}},
		{models.AuditFilter{From: 1_001_000, To: 1_002_000}, []models.ActName{disabled}},
		{models.AuditFilter{Actor: "nobody"}, nil},
	}
	for _, tt := range tests {
		var got []models.ActName
		var at models.AuditPosition
		for {
			page, err := store.AuditLog(t.Context(), tt.filter, at, 1)
			must(t, err)
			if len(page) == 0 {
				break
			}
			got, at = append(got, page[0].Act), models.AuditPosition{At: page[0].At, Key: page[0].ID}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %v, want %v", tt.filter, got, tt.want)
		}
	}
}

// No list names an act twice, and no act is both an operator's and a client's.
func TestActNamesAreDistinct(t *testing.T) {
	t.Parallel()
	all := slices.Sorted(slices.Values(slices.Concat(models.OperatorActs, models.ClientActs)))
	if len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("repeated: %v", all)
	}
}
