package jobs

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
	"partnerbilling/models/logs"
)

// railReportInterval is the time between two reports of a process.
const railReportInterval = 5 * time.Second

// railAnswers counts the rail's answers since the last report, by call and status. It is safe for
// concurrent use.
type railAnswers [callCancel + 1][rail.StatusCount]atomic.Int64

func (a *railAnswers) add(call railCall, status rail.Status) { a[call][status].Add(1) }

// take returns the counts above zero, and sets all counts to zero.
func (a *railAnswers) take() (counts []models.RailCount) {
	for call := range a {
		for status := range a[call] {
			if n := a[call][status].Swap(0); n > 0 {
				counts = append(counts, models.RailCount{
					Call: railCall(call).String(), Status: rail.Status(status).String(), Answers: n,
				})
			}
		}
	}
	return counts
}

// ReportRail adds the counts of the rail's answers to those in Postgres every railReportInterval
// until ctx ends, for the operators' pages. A failed report loses its counts there; the metrics of
// Prometheus keep them.
func (m *Metrics) ReportRail(ctx context.Context, store *models.Store, log *slog.Logger) {
	tick := time.NewTicker(railReportInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.reportRail(ctx, store, log)
	}
}

// reportRail makes one report.
func (m *Metrics) reportRail(ctx context.Context, store *models.Store, log *slog.Logger) {
	if m == nil {
		return
	}
	counts := m.answers.take()
	if len(counts) == 0 {
		return
	}
	recordCtx, cancel := context.WithTimeout(ctx, railReportInterval)
	defer cancel()
	if err := store.RecordRailAnswers(recordCtx, counts); err != nil && ctx.Err() == nil {
		log.WarnContext(ctx, "cannot record the rail's answers", logs.Outage(err), "error", err)
	}
}
