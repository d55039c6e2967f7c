package jobs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"partnerbilling/models"
)

const (
	// auditBudget is the time after which a run of AuditBooks starts no further window.
	auditBudget = 2 * time.Second
	// auditPassInterval is the minimum time from the end of a pass to the next one.
	auditPassInterval = time.Hour
	// A check of a window that takes longer than auditSlow halves the length of the next window. A
	// check faster than auditFast doubles it.
	auditSlow, auditFast = time.Second, 200 * time.Millisecond
	// minAuditWindow and maxAuditWindow bound the length of a window, in service time.
	minAuditWindow, maxAuditWindow = time.Second, 7 * 24 * time.Hour
)

// AuditBooks is the recurring job that checks the invariants of money. A pass checks the time from
// the oldest kept batch to now, window by window. AuditBooks logs each violation and raises an
// alert for it. A run starts no window after auditBudget, and the next run continues the pass.
type AuditBooks struct {
	Store *models.Store
	Now   func() time.Time // measures durations
	Log   *slog.Logger
}

// Run implements queue.Job.
func (j *AuditBooks) Run(ctx context.Context, task models.Task) error {
	if err := j.advance(ctx); err != nil {
		return fmt.Errorf("jobs: audit books: %w", err)
	}
	return j.Store.FinishTask(ctx, task.ID)
}

// advance checks window after window until the pass ends, the budget is used up, or another process
// has moved the pass. Position 0 means that no pass is under way.
func (j *AuditBooks) advance(ctx context.Context) error {
	pass, err := j.Store.AuditPass(ctx)
	if err != nil || pass.Position == 0 && pass.Age() < auditPassInterval {
		return err
	}
	from := pass.Position
	if from == 0 {
		from = max(pass.Now.Add(-models.BatchRetention), 1)
	}
	window := pass.Window()
	for began := j.Now(); j.Now().Sub(began) < auditBudget; {
		to := min(from.Add(window), pass.Now)
		next, length := to, window
		start := j.Now()
		found, err := j.Store.AuditWindow(ctx, from, to)
		switch took := j.Now().Sub(start); {
		case err != nil:
			// The most likely cause is a window that is too large. This run ends with the error,
			// and the next run tries a smaller window.
			next, length = from, max(window/4, minAuditWindow)
		case took > auditSlow:
			length = max(window/2, minAuditWindow)
		case took < auditFast:
			length = min(window*2, maxAuditWindow)
		}
		for _, v := range found {
			j.Log.ErrorContext(ctx, "the audit found a violation",
				"check", v.Check, "subject", v.Subject, "detail", v.Detail)
		}
		if to >= pass.Now && err == nil {
			next = 0
		}
		moved, moveErr := j.Store.MoveAudit(ctx, pass, next, length, found)
		if err != nil || moveErr != nil || !moved || next == 0 {
			return cmp.Or(err, moveErr)
		}
		pass.Position, from, window = next, next, length
	}
	return nil
}
