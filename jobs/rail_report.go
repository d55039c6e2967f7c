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

// railReportInterval is the time between two reports of a worker.
const railReportInterval = 5 * time.Second

// railAnswers counts the rail's answers since the last report, by call and status.
type railAnswers [callCancel + 1][rail.StatusCount]atomic.Int64

func (a *railAnswers) add(call railCall, status rail.Status) { a[call][status].Add(1) }

// take returns the counts, and begins again at zero.
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

// ReportRail writes the counts of the rail's answers to Postgres until ctx ends, for the operators'
// pages. A failed report loses its counts; metrics keep them.
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

func (m *Metrics) reportRail(ctx context.Context, store *models.Store, log *slog.Logger) {
	counts := m.answers.take()
	if len(counts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, railReportInterval)
	defer cancel()
	if err := store.RecordRailAnswers(ctx, counts); err != nil && ctx.Err() == nil {
		log.WarnContext(ctx, "cannot record the rail's answers", logs.Outage(err), "error", err)
	}
}
