package models_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func figures(t *testing.T, store *models.Store) models.Figures {
	t.Helper()
	f, err := store.Figures(t.Context())
	must(t, err)
	return f
}

func TestFigures(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	none := map[string]int{}
	for _, kind := range models.AlertKinds {
		none[kind] = 0
	}
	if diff := cmp.Diff(models.Figures{OpenAlerts: none}, figures(t, store)); diff != "" {
		t.Errorf("of an empty service (-want +got):\n%s", diff)
	}

	write := func(query string, args ...any) {
		t.Helper()
		_, err := store.DB().ExecContext(t.Context(), query, args...)
		must(t, err)
	}
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, 1_800_000_000_000)
	modelstest.Submit(t, store, modelstest.Batch(site, "first", "someone"))
	modelstest.AdvanceClock(t, store, 7*time.Hour)
	modelstest.Submit(t, store, modelstest.Batch(site, "second", "someone"))
	write(`INSERT INTO alerts (kind, subject, raised_at, closed_at) VALUES ('lateTruth', 'a', 1, NULL),
		('lateTruth', 'b', 1, NULL), ('lateTruth', 'dealt with', 1, 2), ('rowsUnconfirmed', 'a', 1, NULL)`)
	write(
		`INSERT INTO alerts (kind, subject, raised_at) SELECT 'webhookFailed', n, 1 FROM generate_series(1, 2000) AS n`)
	write(`
INSERT INTO webhook_slots (organisation_id, event_id, endpoint_site_id, site_id, requested_at, task_id, until)
SELECT ?0, gen_random_uuid(), CASE WHEN n % 2 = 0 THEN ?1 ELSE '00000000-0000-0000-0000-000000000000'::uuid END, ?1,
	1, gen_random_uuid(),
    CASE WHEN n % 10 = 0 THEN clock_timestamp() + interval '1 minute' END FROM generate_series(1, 20) AS n`,
		site.OrganisationID, site.ID)
	open := maps.Clone(none)
	open[models.AlertLateTruth], open[models.AlertRowsUnconfirmed], open["webhookFailed"] = 2, 1, models.MostCounted
	want := models.Figures{OldestOpenBatch: 7 * 3_600_000, ParkedEndpoints: 2, ParkedEvents: 18, OpenAlerts: open}
	if diff := cmp.Diff(want, figures(t, store)); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
}

// Every alert that the code raises has a counted kind.
func TestAlertKindsAreThoseThatAreRaised(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	must(t, err)
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	statements, err := filepath.Glob("*.sql")
	must(t, err)
	files = append(files, statements...)
	// The statements of these alerts have the kind as a parameter.
	raised := map[string]bool{
		models.AlertRailConflict: true, models.AlertRailForgot: true, models.AlertPartyUnreadable: true,
		models.AlertTransactionInDoubt: true, models.AlertRailContradiction: true, models.AlertAuditViolation: true,
	}
	for _, kind := range models.Findings {
		raised[string(kind)] = true
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		must(t, err)
		for _, m := range regexp.MustCompile(
			`raise_alert\((?:CASE WHEN r.corrected THEN )?'(\w+)'|\talert\w+ += "(\w+)"`).FindAllSubmatch(source, -1) {
			raised[string(m[1])+string(m[2])] = true
		}
	}
	want := slices.Clone(models.AlertKinds)
	slices.Sort(want)
	var got []string
	for kind := range raised {
		got = append(got, kind)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("AlertKinds, and what is raised (-want +got):\n%s", diff)
	}
}
