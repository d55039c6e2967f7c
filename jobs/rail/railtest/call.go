package railtest

import (
	"context"
	"slices"
	"sync"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// TB is the part of testing.TB that this package uses. *testing.T and *rapid.T implement it.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Debit waits for admission, for the organisation of the first debit, and calls r.Debit. It returns
// the results in the order of the debits. The test fails unless r reports each debit exactly once,
// before r.Debit returns, and with a result that rail.Rail allows.
func Debit(ctx context.Context, t TB, r rail.Rail, debits ...rail.Debit) []rail.Result {
	t.Helper()
	var payee models.OrganisationID
	if len(debits) > 0 {
		payee = debits[0].OrganisationID
	}
	admit(ctx, t, r, payee, len(debits))
	return collect(t, debitResults, len(debits), func(report func(int, rail.Result)) {
		r.Debit(ctx, debits, report)
	})
}

// Lookup waits for admission and calls r.Lookup, with the same checks as Debit.
func Lookup(ctx context.Context, t TB, r rail.Rail, keys ...string) []rail.Result {
	t.Helper()
	admit(ctx, t, r, models.OrganisationID{}, len(keys))
	return collect(t, lookupResults, len(keys), func(report func(int, rail.Result)) {
		r.Lookup(ctx, keys, report)
	})
}

// Cancel waits for admission and calls r.Cancel, with the same checks as Debit.
func Cancel(ctx context.Context, t TB, r rail.Rail, keys ...string) []rail.Result {
	t.Helper()
	admit(ctx, t, r, models.OrganisationID{}, len(keys))
	return collect(t, cancelResults, len(keys), func(report func(int, rail.Result)) {
		r.Cancel(ctx, keys, report)
	})
}

// admit waits until n requests are admitted, or ctx ends.
func admit(ctx context.Context, t TB, r rail.Rail, organisation models.OrganisationID, n int) {
	t.Helper()
	for n > 0 {
		admitted := r.Admit(ctx, organisation, n)
		if admitted < 0 || admitted > n || admitted == 0 && ctx.Err() == nil {
			t.Errorf("railtest: %d of %d requests are admitted", admitted, n)
		}
		if admitted <= 0 {
			return
		}
		n -= admitted
	}
}

// reports collects the reports of one call.
type reports struct {
	mu       sync.Mutex
	results  []rail.Result
	times    []int // number of reports, by index
	order    []int // indexes in the order of the reports
	returned bool  // the call has returned
	late     bool  // a report came after that
}

func newReports(n int) *reports {
	return &reports{results: make([]rail.Result, n), times: make([]int, n)}
}

func (s *reports) report(i int, r rail.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = s.late || s.returned
	s.results[i] = r
	s.times[i]++
	s.order = append(s.order, i)
}

// The statuses that each call may report.
var (
	debitResults = []rail.Status{
		rail.Unknown, rail.Succeeded, rail.Refused, rail.Cancelled, rail.Conflict, rail.Unavailable, rail.Invalid,
	}
	lookupResults = []rail.Status{rail.Unknown, rail.Succeeded, rail.Refused, rail.Cancelled, rail.NotFound}
	cancelResults = []rail.Status{rail.Unknown, rail.Succeeded, rail.Refused, rail.Cancelled}
)

// isWellFormed reports whether a call that may report the statuses may report this result.
func isWellFormed(r rail.Result, statuses []rail.Status) bool {
	holds := r.Held != rail.Particulars{}
	ofDebit := slices.Contains(statuses, rail.Conflict) // only Debit reports Conflict
	mayHold := !ofDebit && r.Status != rail.NotFound
	mustHold := !ofDebit && (r.Status == rail.Succeeded || r.Status == rail.Refused)
	complete := r.Held.AgreementID != "" && r.Held.Amount > 0 && r.Held.Currency != ""
	return slices.Contains(statuses, r.Status) && (r.Reason != "") == (r.Status == rail.Refused) &&
		(mayHold || !holds) && (holds || !mustHold) && (complete || !holds)
}

// check checks the reports of a call that has just returned, and at the end of the test that none
// came later.
func (s *reports) check(t TB, statuses []rail.Status) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned = true
	for i, n := range s.times {
		if n != 1 {
			t.Errorf("railtest: index %d was reported %d times, want once", i, n)
		}
	}
	for i, r := range s.results {
		if !isWellFormed(r, statuses) {
			t.Errorf("railtest: index %d is reported as %+v", i, r)
		}
	}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.late {
			t.Errorf("railtest: a report came after the call had returned")
		}
	})
}

// collect makes a call, checks its reports and returns the results.
func collect(t TB, statuses []rail.Status, n int, call func(report func(int, rail.Result))) []rail.Result {
	t.Helper()
	s := newReports(n)
	call(s.report)
	s.check(t, statuses)
	return s.results
}
