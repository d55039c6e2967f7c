package jobs

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// Workers add up the rail's answers in Postgres, and drop counts older than an hour.
func TestRailReport(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	if _, err := store.DB().ExecContext(t.Context(),
		"INSERT INTO rail_minutes VALUES (1, 'debit', 'succeeded', 7, now())"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // workers
		m := NewMetrics(prometheus.NewRegistry())
		m.railCall(callDebit, rail.Unknown, time.Second)
		m.railCall(callDebit, rail.Unknown, time.Second)
		m.railCall(callLookup, rail.Succeeded, time.Second)
		for range 2 { // the second report has nothing to add
			m.reportRail(t.Context(), store, slog.New(slog.DiscardHandler))
		}
	}
	(*Metrics)(nil).reportRail(t.Context(), store, slog.New(slog.DiscardHandler)) // adds nothing
	answers, err := store.RailAnswers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range answers {
		if answers[i].LastAt.IsZero() {
			t.Errorf("%+v has no time", answers[i])
		}
		answers[i].LastAt = time.Time{}
	}
	want := []models.RailAnswers{
		{Call: "debit", Status: "unknown", LastFiveMinutes: 4, LastHour: 4},
		{Call: "lookup", Status: "succeeded", LastFiveMinutes: 2, LastHour: 2},
	}
	if len(answers) != 2 || answers[0] != want[0] || answers[1] != want[1] {
		t.Errorf("answers %+v, want %+v", answers, want)
	}
	var rows int
	if err := store.DB().NewRaw("SELECT count(*) FROM rail_minutes WHERE minute = 1").Scan(t.Context(),
		&rows); err != nil {
		t.Fatal(err)
	}
	if rows != 0 {
		t.Error("the count of 1970 is kept")
	}
}

// A report that times out is logged, unless the worker ends.
func TestRailReportTimesOut(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	tx, err := store.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "LOCK TABLE rail_minutes"); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for name, tt := range map[string]struct {
		ctx    context.Context
		logged bool
	}{"running": {t.Context(), true}, "ended": {ended, false}} {
		var log strings.Builder
		m := NewMetrics(prometheus.NewRegistry())
		m.railCall(callDebit, rail.Unknown, time.Second)
		m.reportRail(tt.ctx, store, slog.New(slog.NewTextHandler(&log, nil)))
		if logged := strings.Contains(log.String(), "cannot record the rail's answers"); logged != tt.logged {
			t.Errorf("%s: the log is %q", name, log.String())
		}
	}
}
