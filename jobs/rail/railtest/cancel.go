package railtest

import (
	"fmt"
	"testing"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// testCancelThenDebit is a test of the conformance suite, as are the other tests in this file. It
// debits keys that were cancelled before any debit arrived. Such a key never holds particulars, not
// even after a debit.
func testCancelThenDebit(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays)
	f.Open(t, "another", models.BehaviourPays)
	late := debit("a", "pays")
	for _, d := range append([]rail.Debit{late, late}, changed(late)...) {
		want(t, "cancel", Cancel(ctx, t, f.Rail, "a", "b"), cancelled, cancelled)
		want(t, "lookup", Lookup(ctx, t, f.Rail, "a"), cancelled)
		want(t, "debit", Debit(ctx, t, f.Rail, d, debit("c", "pays")), cancelled, succeeded)
		want(t, "lookup afterwards", Lookup(ctx, t, f.Rail, "a"), cancelled)
	}
	f.wantDebited(t, map[string]models.Amount{"c": 100})
}

// testDebitThenCancel cancels keys with a final result. The keys keep that result.
func testDebitThenCancel(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays, models.BehaviourLimitExceeded)
	a, b := debit("a", "pays"), debit("b", "limitExceeded")
	want(t, "debit", Debit(ctx, t, f.Rail, a, b), succeeded, refused(rail.LimitExceeded))
	want(t, "cancel", Cancel(ctx, t, f.Rail, "a", "b"), held(a, succeeded), held(b, refused(rail.LimitExceeded)))
	want(t, "debit", Debit(ctx, t, f.Rail, a), succeeded)
	f.wantDebited(t, map[string]models.Amount{"a": 100})
}

// testCancelRacesDebit debits and cancels each key concurrently. Both calls must report the same
// status.
func testCancelRacesDebit(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays)
	debited := make(map[string]models.Amount)
	for i := range 100 {
		key := fmt.Sprint("k", i)
		var byDebit, byCancel rail.Result
		concurrently(2, func(n int) {
			if n == 0 {
				byDebit = Debit(ctx, t, f.Rail, debit(key, "pays"))[0]
			} else {
				byCancel = Cancel(ctx, t, f.Rail, key)[0]
			}
		})
		truth := cancelled
		if byDebit.Status == rail.Succeeded {
			truth, debited[key] = held(debit(key, "pays"), succeeded), 100
		}
		want(t, "debit", []rail.Result{byDebit}, rail.Result{Status: truth.Status})
		want(t, "cancel", []rail.Result{byCancel}, truth)
		want(t, "lookup", Lookup(ctx, t, f.Rail, key), truth)
	}
	f.wantDebited(t, debited)
}

// testCancelUndecided cancels a debit that the rail has accepted but not decided yet. The key keeps
// the debit's particulars.
func testCancelUndecided(t *testing.T, f Fixture) {
	ctx, d := t.Context(), debit("a", "slow")
	f.open(t, models.BehaviourSlow)
	done := make(chan []rail.Result)
	go func() { done <- Debit(ctx, t, f.Rail, d) }()
	f.awaitArrival(ctx, t, d)
	for range 2 {
		want(t, "cancel", Cancel(ctx, t, f.Rail, "a"), held(d, cancelled))
		want(t, "lookup", Lookup(ctx, t, f.Rail, "a"), held(d, cancelled))
	}
	want(t, "debit", <-done, cancelled)
	want(t, "the same again", Debit(ctx, t, f.Rail, d), cancelled)
	want(t, "other particulars", Debit(ctx, t, f.Rail, changed(d)...), conflict, conflict, conflict)
	f.wantDebited(t, map[string]models.Amount{})
}
