package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"partnerbilling/jobs/reconcile"
	"partnerbilling/models"
)

const (
	// reconcileBudget is how long a run continues to compare after its first progress. If reaching
	// that progress took longer than reconcileBudget, the run continues for that longer time.
	reconcileBudget = 8 * time.Second
	// advanceTimeout and recheckTimeout bound the two parts of a run. Their sum is below the
	// queue's time-out of a run. advanceTimeout must suffice for the pages that a run lists again
	// before its first progress. They cover a period of reconcile.Overlap plus reconcile.Skew: 300
	// pages at 1,000 debits a second.
	advanceTimeout, recheckTimeout = 80 * time.Second, 30 * time.Second
	// maxRecheck is the maximum number of differences that a run checks again, and recheckStep the
	// maximum number in one step.
	maxRecheck, recheckStep = 500, 100
	// horizonMargin is how long after the rail's horizon the comparison begins. The horizon is the
	// time at which the rail's list begins. It moves, and must not overtake the comparison.
	horizonMargin = time.Hour
)

// ReconcileRail is the recurring job that compares the ledger with the rail's list of debits. Each
// run continues at ComparedTo, the time up to which both have been compared. It records each step
// with the differences found, and then checks earlier differences again. If the rail gives no
// answer, the run only checks differences that need none, and the next run tries again. A run also
// ends if another run has moved ComparedTo.
type ReconcileRail struct {
	Comparer *reconcile.Comparer
	Now      func() time.Time // measures the budget
	Metrics  *Metrics
	Log      *slog.Logger
}

// The reasons for which a run ends early.
var (
	errUnfinished = errors.New("jobs: there is more to compare")
	errOvertaken  = errors.New("jobs: another run has moved ComparedTo")
)

// Run implements queue.Job.
func (j *ReconcileRail) Run(ctx context.Context, task models.Task) error {
	err := within(ctx, advanceTimeout, task.ID, j.advance)
	unfinished, railFailed := errors.Is(err, errUnfinished), errors.Is(err, reconcile.ErrRail)
	if railFailed {
		j.logRail(ctx, err)
	}
	if err == nil || unfinished || railFailed {
		// Differences that are due are rechecked even while the comparison is behind.
		err = within(ctx, recheckTimeout, task.ID, func(ctx context.Context, task models.TaskID) error {
			return j.recheck(ctx, task, !railFailed)
		})
	}
	switch {
	case errors.Is(err, reconcile.ErrRail):
		j.logRail(ctx, err)
	case err != nil && !errors.Is(err, errOvertaken):
		return fmt.Errorf("jobs: reconcile: %w", err)
	case err == nil && unfinished:
		return j.Comparer.Store.RepeatTask(ctx, task.ID, 0)
	}
	return j.Comparer.Store.FinishTask(ctx, task.ID)
}

// logRail logs that the rail gives no answer.
func (j *ReconcileRail) logRail(ctx context.Context, err error) {
	j.Log.WarnContext(ctx, "the reconciliation stops", "error", err)
}

// within runs a part of a task with a time-out.
func within(
	ctx context.Context, timeout time.Duration, task models.TaskID, do func(context.Context, models.TaskID) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return do(ctx, task)
}

// advance compares step by step up to now. When the budget is used up, it returns errUnfinished,
// but only after it has moved ComparedTo. The next run therefore begins at a later time.
func (j *ReconcileRail) advance(ctx context.Context, task models.TaskID) error {
	store := j.Comparer.Store
	state, err := store.Reconciliation(ctx)
	if err != nil {
		return err
	}
	from := state.ComparedTo
	if from == 0 {
		from = max(state.Now.Add(-models.RailMemory+horizonMargin), state.Since)
	}
	spent := budget{now: j.Now, began: j.Now()}
	err = j.Comparer.Compare(ctx, from, state.Now, func(step reconcile.Step) error {
		c := models.Comparison{From: state.ComparedTo, To: step.To, Found: step.Differences}
		if err := j.record(ctx, c); err != nil {
			return err
		}
		state.ComparedTo = step.To
		j.Metrics.compared(step.Debits, step.Entries)
		if step.To > from && spent.noteProgress() {
			return errUnfinished
		}
		return store.ExtendTask(ctx, task)
	})
	if forgotten := (*reconcile.ForgottenError)(nil); errors.As(err, &forgotten) {
		return j.skip(ctx, state, forgotten.CompleteFrom)
	}
	return err
}

// budget measures the time of a run against reconcileBudget. The budget begins with the first
// progress, since a run first reads again what earlier runs have compared.
type budget struct {
	now          func() time.Time
	began, moved time.Time // moved is zero before the first progress
}

// noteProgress notes the time of the run's first progress. It reports whether the budget is used
// up, so that the run must end.
func (b *budget) noteProgress() (used bool) {
	now := b.now()
	if b.moved.IsZero() {
		b.moved = now
	}
	return now.Sub(b.moved) > max(reconcileBudget, b.moved.Sub(b.began))
}

// skip moves ComparedTo to horizonMargin after the rail's horizon, and returns errUnfinished. It
// reports the skipped time to operators as a gap, unless nothing has ever been compared.
func (j *ReconcileRail) skip(ctx context.Context, state models.Reconciliation, horizon models.Millis) error {
	skipped := models.Comparison{From: state.ComparedTo, To: min(horizon.Add(horizonMargin), state.Now)}
	if state.ComparedTo != 0 {
		skipped.Gap = fmt.Sprintf("not compared from %s to %s: the rail's list begins later",
			state.ComparedTo.Time().Format(time.RFC3339), skipped.To.Time().Format(time.RFC3339))
	}
	if err := j.record(ctx, skipped); err != nil {
		return err
	}
	return errUnfinished // the task continues at once
}

// recheck checks the due differences again: first the aged ones, which need no rail, and then, if
// withRail is set, the others.
func (j *ReconcileRail) recheck(ctx context.Context, task models.TaskID, withRail bool) error {
	store := j.Comparer.Store
	state, err := store.Reconciliation(ctx)
	if err != nil {
		return err
	}
	due, err := store.DueDifferences(ctx, maxRecheck)
	if err != nil {
		return err
	}
	recent, aged := reconcile.SplitAged(due)
	parts := slices.Collect(slices.Chunk(aged, recheckStep))
	if withRail {
		parts = slices.AppendSeq(parts, slices.Chunk(recent, recheckStep))
	}
	for _, part := range parts {
		remain, resolved, err := j.Comparer.Recheck(ctx, part)
		if err != nil {
			return err
		}
		c := models.Comparison{From: state.ComparedTo, To: state.ComparedTo, Found: remain, Resolved: resolved}
		if err := errors.Join(j.record(ctx, c), store.ExtendTask(ctx, task)); err != nil {
			return err
		}
	}
	return nil
}

// record records a step in the database. It returns errOvertaken if another run has moved
// ComparedTo.
func (j *ReconcileRail) record(ctx context.Context, c models.Comparison) error {
	moved, err := j.Comparer.Store.RecordComparison(ctx, c)
	if err == nil && !moved {
		err = errOvertaken
	}
	return err
}
