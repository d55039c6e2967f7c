package jobs

import (
	"context"
	"slices"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/models/logs"
)

// startCalls starts rail calls for rows, in waves as permits and the rail's admission allow. todo
// holds the rows' indexes by call. Once ctx has ended, no further wave is admitted; admitted calls
// may go on until callCtx ends. If holdClaims is set, each row holds a claim permit until its wave
// is admitted or ctx ends.
func (run *chunkRun) startCalls(ctx, callCtx context.Context, todo map[railCall][]int, holdClaims bool) {
	for call, indexes := range todo {
		run.outstanding += len(indexes)
		rows := run.rowsAt(indexes)
		run.work.Go(func() { run.sendWaves(ctx, callCtx, call, rows, holdClaims) })
	}
}

// rowsAt returns the rows with these indexes. Only the goroutine of process may call it: that
// goroutine adds rows to the map.
func (run *chunkRun) rowsAt(indexes []int) []*rowRun {
	rows := make([]*rowRun, len(indexes))
	for i, index := range indexes {
		rows[i] = run.rows[index]
	}
	return rows
}

// sendWaves makes one kind of call for the rows, each wave in a goroutine of its own. If ctx ends,
// it reports the remaining rows as unsent.
func (run *chunkRun) sendWaves(ctx, callCtx context.Context, call railCall, rows []*rowRun, holdClaims bool) {
	releaseClaims := func(n int) {
		if holdClaims {
			run.job.Permits.ReleaseClaims(run.task.OrganisationID, n)
		}
	}
	for len(rows) > 0 {
		n := run.admit(ctx, call, len(rows))
		if n == 0 {
			releaseClaims(len(rows))
			run.reportUnsent(rows)
			return
		}
		releaseClaims(n)
		wave := rows[:n]
		rows = rows[n:]
		run.work.Go(func() { run.callRail(callCtx, call, wave) })
	}
}

// admit waits until calls for some of n rows may begin. It returns the number of those rows: 0 if
// the context ends first. Each of them has a call permit and the rail's admission. admit releases
// the permits of rows that the rail did not admit.
func (run *chunkRun) admit(ctx context.Context, call railCall, n int) int {
	permits := run.job.Permits.AcquireCalls(ctx, run.ticket, n)
	if permits == 0 {
		return 0
	}
	admitted := run.job.Rail.Admit(ctx, call.chargedTo(run.task.OrganisationID), permits)
	run.job.Permits.ReleaseCalls(run.task.OrganisationID, permits-admitted)
	return admitted
}

// withGrace returns a context that stays alive for the grace period after the end of ctx.
func withGrace(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, cancel)
		context.AfterFunc(later, func() { timer.Stop() })
	})
	return later, func() { stop(); cancel() }
}

// reportUnsent reports that the rows' calls were not made.
func (run *chunkRun) reportUnsent(rows []*rowRun) {
	for _, r := range rows {
		run.answers <- answer{index: r.row.Index, unsent: true}
	}
}

// callRail makes one call for rows that hold a call permit and an admission each, and reports the
// answers. Before a debit it rechecks the rows. It releases the permits.
func (run *chunkRun) callRail(ctx context.Context, call railCall, rows []*rowRun) {
	ctx = run.withIDs(ctx)
	if call == callDebit {
		rows = run.recheck(ctx, rows)
	}
	if len(rows) == 0 {
		return
	}
	ctx, span := run.job.Tracer.StartRail(ctx, call.String(), len(rows))
	defer span.End(nil)
	began := run.job.Now()
	report := func(i int, r rail.Result) {
		run.job.Permits.ReleaseCalls(run.task.OrganisationID, 1)
		now := run.job.Now()
		run.job.Metrics.railCall(call, r.Status, now.Sub(began))
		if !r.Status.Final() && r.Status != rail.NotFound {
			span.Fail("no final answer")
		}
		run.job.railLog.answer(ctx, run.job.Log, now, rows[i].row.RailKey, call, r)
		run.answers <- answer{index: rows[i].row.Index, call: call, result: r}
	}
	switch call {
	case callDebit:
		run.job.Rail.Debit(ctx, debitsOf(rows), report)
	case callLookup:
		run.job.Rail.Lookup(ctx, keysOf(rows), report)
	case callCancel:
		run.job.Rail.Cancel(ctx, keysOf(rows), report)
	case callNone: // decide starts no call for such rows
	}
}

// recheck returns the rows that this worker still holds and that may be debited. It reports the
// others and releases their call permits. It checks nothing while the rows are fresh. Otherwise it
// reads their leases and eligibility. If a lease is lost or more than half over, it extends the
// leases.
func (run *chunkRun) recheck(ctx context.Context, rows []*rowRun) []*rowRun {
	if run.isFresh(rows) {
		return rows
	}
	indexes := indexesOf(rows)
	held, err := run.job.Store.CheckRows(ctx, run.chunk, indexes)
	if err == nil && len(held) < len(rows) {
		held, err = run.job.Store.ExtendRows(ctx, run.chunk, indexes)
	}
	if err != nil {
		run.job.Log.WarnContext(ctx, "cannot confirm the lease", logs.Outage(err), "error", err)
		run.job.Permits.ReleaseCalls(run.task.OrganisationID, len(rows))
		run.reportUnsent(rows)
		return nil
	}
	kept := make([]*rowRun, 0, len(rows))
	for _, r := range rows {
		eligibility, ok := held[r.row.Index]
		switch {
		case !ok:
			run.answers <- answer{index: r.row.Index, lost: true}
		case !eligibility.MayDebit():
			run.answers <- answer{index: r.row.Index, ineligible: &eligibility}
		default:
			kept = append(kept, r)
		}
	}
	run.job.Permits.ReleaseCalls(run.task.OrganisationID, len(rows)-len(kept))
	return kept
}

// isFresh reports whether all the rows were read less than recheckAfter ago, so that their leases
// and eligibility need no recheck.
func (run *chunkRun) isFresh(rows []*rowRun) bool {
	now := run.job.Now()
	return !slices.ContainsFunc(rows, func(r *rowRun) bool { return now.Sub(r.readAt) >= recheckAfter })
}

func indexesOf(rows []*rowRun) []int {
	indexes := make([]int, len(rows))
	for i, r := range rows {
		indexes[i] = r.row.Index
	}
	return indexes
}

func debitsOf(rows []*rowRun) []rail.Debit {
	debits := make([]rail.Debit, len(rows))
	for i, r := range rows {
		debits[i] = r.debit()
	}
	return debits
}

func keysOf(rows []*rowRun) []string {
	keys := make([]string, len(rows))
	for i, r := range rows {
		keys[i] = r.row.RailKey
	}
	return keys
}
