// Package railtest tests payment rails, and what uses them. Run is the conformance suite that every adapter passes;
// Scripted is a double of the outside world for tests of the machinery on this side of the port.
package railtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// Fixture is a rail under test, with the means to set up its world and to look behind it.
type Fixture struct {
	Rail rail.Rail
	// Open opens the account behind an agreement.
	Open func(t TB, agreementID string, b models.Behaviour)
	// Advance moves the rail's service time forward. It is nil for a rail that knows no time, whose accounts are neither
	// slow nor ever back from BankDown; Run leaves out the tests of those.
	Advance func(t TB, by time.Duration)
	// Debited is the rail's own list of the amounts it has taken, by key.
	Debited func(t TB) map[string]models.Amount
}

// Run runs the conformance suite. open makes a fixture with a world of its own; it is called once for each test, and
// the tests run in parallel.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for name, test := range map[string]func(*testing.T, Fixture){
		"LostAnswer":             testLostAnswer,
		"Repeat":                 testRepeat,
		"Conflict":               testConflict,
		"ConflictInOneCall":      testConflictInOneCall,
		"ConflictAtOnce":         testConflictAtOnce,
		"SameKeyInOneCall":       testSameKeyInOneCall,
		"SameKeyAtOnce":          testSameKeyAtOnce,
		"Unseen":                 testUnseen,
		"CancelThenDebit":        testCancelThenDebit,
		"DebitThenCancel":        testDebitThenCancel,
		"CancelRacesDebit":       testCancelRacesDebit,
		"Many":                   testMany,
		"None":                   testNone,
		"Turns":                  testTurns,
		"TurnsEndWithTheContext": testTurnsEndWithTheContext,
		"OddKeys":                testOddKeys,
		"InvalidItems":           testInvalidItems,
		"InvalidIsOfTheCall":     testInvalidIsOfTheCall,
		"ContextEndedBefore":     testContextEndedBefore,
		"Machine":                testMachine,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
	for name, test := range map[string]func(*testing.T, Fixture){
		"Behaviours":               testBehaviours,
		"SlowDelaysNoOther":        testSlowDelaysNoOther,
		"BankDown":                 testBankDown,
		"CancelUndecided":          testCancelUndecided,
		"ConflictWithUndecided":    testConflictWithUndecided,
		"ContextEndsWhileDeciding": testContextEndsWhileDeciding,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			if f.Advance == nil {
				t.Skip("the rail knows no time")
			}
			test(t, f)
		})
	}
}

// debit is an order for 1.00 AUD unless changed.
func debit(key, agreement string) rail.Debit {
	return rail.Debit{Key: key, AgreementID: agreement, CustomerID: "cus-1", Amount: 100, Currency: "AUD"}
}

// open opens an account with an agreement named after its behaviour.
func (f Fixture) open(t TB, behaviours ...models.Behaviour) {
	t.Helper()
	for _, b := range behaviours {
		f.Open(t, string(b), b)
	}
}

func (f Fixture) wantDebited(t TB, want map[string]models.Amount) {
	t.Helper()
	if got := f.Debited(t); !maps.Equal(got, want) {
		t.Errorf("the rail has debited %v, want %v", got, want)
	}
}

var (
	succeeded   = rail.Result{Status: rail.Succeeded}
	cancelled   = rail.Result{Status: rail.Cancelled}
	unknown     = rail.Result{Status: rail.Unknown}
	unavailable = rail.Result{Status: rail.Unavailable}
	notFound    = rail.Result{Status: rail.NotFound}
	conflict    = rail.Result{Status: rail.Conflict}
	invalid     = rail.Result{Status: rail.Invalid}
)

func refused(why rail.Reason) rail.Result { return rail.Result{Status: rail.Refused, Reason: why} }

// held is a result of Lookup or Cancel whose key holds a debit.
func held(d rail.Debit, r rail.Result) rail.Result {
	r.Held = d.Particulars()
	return r
}

// heldAll are results of Lookup or Cancel, each with its key's debit. NotFound holds nothing.
func heldAll(debits []rail.Debit, results ...rail.Result) []rail.Result {
	all := slices.Clone(results)
	for i, r := range all {
		if r != notFound {
			all[i] = held(debits[i], r)
		}
	}
	return all
}

// same compares two results, but for their details.
func same(a, b rail.Result) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Held == b.Held
}

// want compares results, but for their details.
func want(t TB, what string, got []rail.Result, want ...rail.Result) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d results, want %d", what, len(got), len(want))
	}
	for i := range got {
		if !same(got[i], want[i]) {
			t.Errorf("%s: result %d is %+v, want %+v", what, i, got[i], want[i])
		}
	}
}

func repeat(r rail.Result, n int) []rail.Result {
	all := make([]rail.Result, n)
	for i := range all {
		all[i] = r
	}
	return all
}

func testBehaviours(t *testing.T, f Fixture) {
	ctx := t.Context()
	tests := []struct {
		behaviour models.Behaviour
		first     rail.Result
		final     rail.Result
	}{
		{models.BehaviourPays, succeeded, succeeded},
		{models.BehaviourInsufficientFunds, refused(rail.InsufficientFunds), refused(rail.InsufficientFunds)},
		{models.BehaviourAccountUnavailable, refused(rail.AccountUnavailable), refused(rail.AccountUnavailable)},
		{models.BehaviourLimitExceeded, refused(rail.LimitExceeded), refused(rail.LimitExceeded)},
		{models.BehaviourDeclines, refused(rail.DeclinedByCustomer), refused(rail.DeclinedByCustomer)},
		{models.BehaviourSlow, succeeded, succeeded},
		{models.BehaviourBankDown, unavailable, notFound},
		{models.BehaviourAnswerLost, unknown, succeeded},
		{"noSuchAgreement", refused(rail.AccountUnavailable), refused(rail.AccountUnavailable)},
	}
	var debits []rail.Debit
	var keys []string
	var first, final []rail.Result
	debited := make(map[string]models.Amount)
	f.open(t, models.Behaviours...)
	for _, tt := range tests {
		d := debit("key of "+string(tt.behaviour), string(tt.behaviour))
		debits, keys = append(debits, d), append(keys, d.Key)
		first, final = append(first, tt.first), append(final, tt.final)
		if tt.final == succeeded {
			debited[d.Key] = d.Amount
		}
	}
	want(t, "debit", Debit(ctx, t, f.Rail, debits...), first...)
	want(t, "lookup", Lookup(ctx, t, f.Rail, keys...), heldAll(debits, final...)...)
	f.wantDebited(t, debited)
}

func testSlowDelaysNoOther(t *testing.T, f Fixture) {
	f.open(t, models.BehaviourSlow, models.BehaviourPays)
	debits := []rail.Debit{debit("slow", "slow"), debit("fast", "pays"), debit("slow too", "slow")}
	s := newReports(len(debits))
	takeTurns(t.Context(), t, f.Rail, models.OrganisationID{}, len(debits))
	start := time.Now()
	f.Rail.Debit(t.Context(), debits, s.report)
	took := time.Since(start)
	s.check(t, debitResults)
	want(t, "debit", s.results, repeat(succeeded, 3)...)
	if s.order[0] != 1 {
		t.Errorf("reported in the order %v, want the fast one first", s.order)
	}
	if took < models.SandboxSlowness {
		t.Errorf("slow debits took %v, want at least %v", took, models.SandboxSlowness)
	}
}

func testBankDown(t *testing.T, f Fixture) {
	ctx, d := t.Context(), debit("k", "bankDown")
	f.open(t, models.BehaviourBankDown)
	want(t, "at once", Debit(ctx, t, f.Rail, d), unavailable)
	want(t, "nothing arrived", Lookup(ctx, t, f.Rail, "k"), notFound)
	want(t, "cancel meanwhile", Cancel(ctx, t, f.Rail, "k2"), cancelled)
	want(t, "a cancelled key", Debit(ctx, t, f.Rail, debit("k2", "bankDown")), cancelled)
	f.Advance(t, models.SandboxBankDownFor)
	dearer := d
	dearer.Amount++
	want(t, "later", Debit(ctx, t, f.Rail, dearer), succeeded) // unavailable calls fix no particulars
	want(t, "as it was first", Debit(ctx, t, f.Rail, d), conflict)
	f.wantDebited(t, map[string]models.Amount{"k": 101})
}

func testLostAnswer(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourAnswerLost)
	a, b, c, d := debit("a", "answerLost"), debit("b", "answerLost"), debit("c", "answerLost"), debit("d", "answerLost")
	want(t, "debit", Debit(ctx, t, f.Rail, a, b, c, d), repeat(unknown, 4)...)
	want(t, "lookup", Lookup(ctx, t, f.Rail, "a"), held(a, succeeded))
	want(t, "the same again", Debit(ctx, t, f.Rail, b), succeeded)
	want(t, "cancel", Cancel(ctx, t, f.Rail, "c"), held(c, succeeded))
	other := d
	other.Amount++
	want(t, "other particulars", Debit(ctx, t, f.Rail, other), conflict)
	f.wantDebited(t, map[string]models.Amount{"a": 100, "b": 100, "c": 100, "d": 100})
}

func testRepeat(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays, models.BehaviourInsufficientFunds)
	for range 3 {
		want(t, "debit", Debit(ctx, t, f.Rail, debit("a", "pays"), debit("b", "insufficientFunds")),
			succeeded, refused(rail.InsufficientFunds))
	}
	f.wantDebited(t, map[string]models.Amount{"a": 100})
}

// changed are d with each of its particulars changed in turn. The agreement is another that pays.
func changed(d rail.Debit) []rail.Debit {
	amount, agreement, currency := d, d, d
	amount.Amount++
	agreement.AgreementID = "another"
	currency.Currency = "NZD"
	return []rail.Debit{amount, agreement, currency}
}

// testConflict debits again with each of the particulars changed: the key stays with what it holds.
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

// testConflictInOneCall debits keys twice in one call, with each of the particulars changed: the first to arrive wins.
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

// testConflictAtOnce sets callers with different particulars on the same keys, half of them in the opposite order.
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
	together(callers, func(n int) {
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

// wantOneWinner checks that one of the debits under a key succeeded, which the key holds then, and the rest are conflicts.
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

func testSameKeyInOneCall(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays)
	d := debit("a", "pays")
	want(t, "debit", Debit(ctx, t, f.Rail, d, d, d), repeat(succeeded, 3)...)
	want(t, "lookup", Lookup(ctx, t, f.Rail, "a", "x", "a"), held(d, succeeded), notFound, held(d, succeeded))
	want(t, "cancel", Cancel(ctx, t, f.Rail, "x", "a", "x"), cancelled, held(d, succeeded), cancelled)
	f.wantDebited(t, map[string]models.Amount{"a": 100})
}

// testSameKeyAtOnce sets many callers on the same keys, half of them in the opposite order.
func testSameKeyAtOnce(t *testing.T, f Fixture) {
	const callers, keys = 8, 20
	f.open(t, models.BehaviourPays)
	debited := make(map[string]models.Amount)
	debits, backwards := make([]rail.Debit, keys), make([]rail.Debit, keys)
	for i := range debits {
		debits[i] = debit(fmt.Sprint("k", i), "pays")
		backwards[keys-1-i] = debits[i]
		debited[debits[i].Key] = 100
	}
	together(callers, func(n int) {
		if n%2 == 0 {
			want(t, "debit", Debit(t.Context(), t, f.Rail, debits...), repeat(succeeded, keys)...)
		} else {
			want(t, "debit", Debit(t.Context(), t, f.Rail, backwards...), repeat(succeeded, keys)...)
		}
	})
	f.wantDebited(t, debited)
}

func testUnseen(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays)
	want(t, "lookup", Lookup(ctx, t, f.Rail, "a", "b"), notFound, notFound)
	want(t, "debit", Debit(ctx, t, f.Rail, debit("a", "pays")), succeeded)
	want(t, "lookup", Lookup(ctx, t, f.Rail, "a", "b"), held(debit("a", "pays"), succeeded), notFound)
}

// testCancelThenDebit debits keys that were cancelled before any debit arrived: they hold nothing, then and later.
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

func testDebitThenCancel(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays, models.BehaviourLimitExceeded)
	a, b := debit("a", "pays"), debit("b", "limitExceeded")
	want(t, "debit", Debit(ctx, t, f.Rail, a, b), succeeded, refused(rail.LimitExceeded))
	want(t, "cancel", Cancel(ctx, t, f.Rail, "a", "b"), held(a, succeeded), held(b, refused(rail.LimitExceeded)))
	want(t, "debit", Debit(ctx, t, f.Rail, a), succeeded)
	f.wantDebited(t, map[string]models.Amount{"a": 100})
}

// testCancelRacesDebit lets a debit and a cancellation meet: whichever wins, both report the same.
func testCancelRacesDebit(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays)
	debited := make(map[string]models.Amount)
	for i := range 100 {
		key := fmt.Sprint("k", i)
		var byDebit, byCancel rail.Result
		together(2, func(n int) {
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

// testConflictWithUndecided has debits with other particulars arrive while the first is not decided yet.
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

// awaitArrival asks until the rail has taken in a slow account's debit, which its key holds from then on.
func (f Fixture) awaitArrival(ctx context.Context, t TB, d rail.Debit) {
	t.Helper()
	for ctx.Err() == nil {
		if r := Lookup(ctx, t, f.Rail, d.Key)[0]; same(r, held(d, unknown)) {
			return
		} else if r.Status != rail.NotFound {
			t.Fatalf("lookup of an undecided key: %+v", r)
		}
	}
	t.Fatalf("the debit never arrived")
}

func testMany(t *testing.T, f Fixture) {
	const n = 500
	ctx := t.Context()
	f.open(t, models.BehaviourPays, models.BehaviourInsufficientFunds)
	debits, keys, wanted := make([]rail.Debit, n), make([]string, n), make([]rail.Result, n)
	debited := make(map[string]models.Amount)
	for i := range n {
		debits[i], wanted[i] = debit(fmt.Sprintf("r1_%064x", i), "pays"), succeeded
		debits[i].Amount = models.Amount(i + 1)
		if i%3 == 0 {
			debits[i].AgreementID, wanted[i] = "insufficientFunds", refused(rail.InsufficientFunds)
		} else {
			debited[debits[i].Key] = debits[i].Amount
		}
		keys[i] = debits[i].Key
	}
	want(t, "debit", Debit(ctx, t, f.Rail, debits...), wanted...)
	want(t, "lookup", Lookup(ctx, t, f.Rail, keys...), heldAll(debits, wanted...)...)
	want(t, "cancel", Cancel(ctx, t, f.Rail, keys...), heldAll(debits, wanted...)...)
	f.wantDebited(t, debited)
}

func testNone(t *testing.T, f Fixture) {
	Debit(t.Context(), t, f.Rail)
	Lookup(t.Context(), t, f.Rail)
	Cancel(t.Context(), t, f.Rail)
}
