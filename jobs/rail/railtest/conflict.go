package railtest

import (
	"fmt"
	"slices"
	"testing"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// changed returns copies of d, each with one of the particulars changed. The caller opens the
// agreement "another" for them, with an account that pays.
func changed(d rail.Debit) []rail.Debit {
	amount, agreement, currency := d, d, d
	amount.Amount++
	agreement.AgreementID = "another"
	currency.Currency = "NZD"
	return []rail.Debit{amount, agreement, currency}
}

// testConflict is a test of the conformance suite, as are the other tests in this file. It repeats
// debits with each of the particulars changed. The keys keep their particulars.
func testConflict(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays, models.BehaviourDeclines)
	f.Open(t, "another", models.BehaviourPays)
	paid, declined := debit("a", "pays"), debit("b", "declines")
	byCustomer := refused(rail.DeclinedByCustomer)
	want(t, "debit", Debit(ctx, t, f.Rail, paid, declined), succeeded, byCustomer)
	others := append(changed(paid), changed(declined)...)
	for range 2 {
		want(t, "other particulars", Debit(ctx, t, f.Rail, others...), repeat(conflict, len(others))...)
		want(t, "lookup", Lookup(ctx, t, f.Rail, "a", "b"), held(paid, succeeded), held(declined, byCustomer))
		want(t, "cancel", Cancel(ctx, t, f.Rail, "a", "b"), held(paid, succeeded), held(declined, byCustomer))
		want(t, "the same again", Debit(ctx, t, f.Rail, paid, declined), succeeded, byCustomer)
	}
	payee := paid
	payee.CustomerID, payee.OrganisationID, payee.SiteID = "cus-2", models.OrganisationID{1}, models.SiteID{1}
	want(t, "what the key does not fix", Debit(ctx, t, f.Rail, payee), succeeded)
	f.wantDebited(t, map[string]models.Amount{"a": 100})
}

// testConflictInOneCall debits each key twice in one call, with different particulars. One debit of
// each key succeeds.
func testConflictInOneCall(t *testing.T, f Fixture) {
	f.open(t, models.BehaviourPays)
	f.Open(t, "another", models.BehaviourPays)
	var debits []rail.Debit
	for i := range changed(rail.Debit{}) {
		d := debit(fmt.Sprint("k", i), "pays")
		debits = append(debits, d, changed(d)[i])
	}
	got := Debit(t.Context(), t, f.Rail, debits...)
	for pair := range slices.Chunk(debits, 2) {
		f.wantOneWinner(t, pair, got[:2])
		got = got[2:]
	}
}

// testConflictAtOnce lets several callers debit the same keys at once, each with other particulars.
// Half of the callers list the keys in reverse order.
func testConflictAtOnce(t *testing.T, f Fixture) {
	const keys = 20
	f.open(t, models.BehaviourPays)
	f.Open(t, "another", models.BehaviourPays)
	var wanted [][]rail.Debit // by key, by caller
	for i := range keys {
		d := debit(fmt.Sprint("k", i), "pays")
		rivals := append(changed(d), d)
		for n, rival := range slices.Clone(rivals) {
			rival.Amount += models.Amount(10 * (n + 1))
			rivals = append(rivals, rival)
		}
		wanted = append(wanted, rivals)
	}
	callers := len(wanted[0])
	got := make([][]rail.Result, callers) // by caller, by key
	concurrently(callers, func(n int) {
		debits := make([]rail.Debit, keys)
		for i := range debits {
			debits[i] = wanted[i][n]
		}
		if n%2 == 0 {
			got[n] = Debit(t.Context(), t, f.Rail, debits...)
			return
		}
		slices.Reverse(debits)
		got[n] = Debit(t.Context(), t, f.Rail, debits...)
		slices.Reverse(got[n])
	})
	for i, debits := range wanted {
		results := make([]rail.Result, callers)
		for n := range results {
			results[n] = got[n][i]
		}
		f.wantOneWinner(t, debits, results)
	}
}

// wantOneWinner checks that exactly one of the debits under a key succeeded, that the key holds its
// particulars, and that the others are conflicts.
func (f Fixture) wantOneWinner(t TB, debits []rail.Debit, got []rail.Result) {
	t.Helper()
	key := debits[0].Key
	winner := slices.IndexFunc(got, func(r rail.Result) bool { return same(r, succeeded) })
	if winner < 0 {
		t.Fatalf("%s: no debit succeeded: %+v", key, got)
	}
	wanted := repeat(conflict, len(got))
	wanted[winner] = succeeded
	want(t, key, got, wanted...)
	want(t, "lookup", Lookup(t.Context(), t, f.Rail, key), held(debits[winner], succeeded))
	if amount := f.Debited(t)[key]; amount != debits[winner].Amount {
		t.Errorf("%s: the rail has debited %d, want %d", key, amount, debits[winner].Amount)
	}
}

// testConflictWithUndecided debits with other particulars while the first debit is not decided yet.
func testConflictWithUndecided(t *testing.T, f Fixture) {
	ctx, d := t.Context(), debit("a", "slow")
	f.open(t, models.BehaviourSlow)
	f.Open(t, "another", models.BehaviourPays)
	done := make(chan []rail.Result)
	go func() { done <- Debit(ctx, t, f.Rail, d) }()
	f.awaitArrival(ctx, t, d)
	want(t, "other particulars", Debit(ctx, t, f.Rail, changed(d)...), conflict, conflict, conflict)
	want(t, "debit", <-done, succeeded)
	want(t, "lookup", Lookup(ctx, t, f.Rail, "a"), held(d, succeeded))
	f.wantDebited(t, map[string]models.Amount{"a": 100})
}
