// Package railtest tests payment rails, and what uses them. Run is the conformance suite that every adapter passes;
// Scripted is a double of the outside world for tests of the machinery on this side of the port.
package railtest

import (
	"context"
	"fmt"
	"maps"
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
	// Advance moves the rail's service time forward.
	Advance func(t TB, by time.Duration)
	// Debited is the rail's own list of what it has taken, by key.
	Debited func(t TB) map[string]models.Amount
}

// Run runs the conformance suite. open makes a fixture with a world of its own; it is called once for each test, and
// the tests run in parallel.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for name, test := range map[string]func(*testing.T, Fixture){
		"Behaviours":               testBehaviours,
		"SlowDelaysNobody":         testSlowDelaysNobody,
		"BankDown":                 testBankDown,
		"LostAnswer":               testLostAnswer,
		"Repeat":                   testRepeat,
		"KeyReused":                testKeyReused,
		"SameKeyInOneCall":         testSameKeyInOneCall,
		"SameKeyAtOnce":            testSameKeyAtOnce,
		"Unseen":                   testUnseen,
		"CancelThenDebit":          testCancelThenDebit,
		"DebitThenCancel":          testDebitThenCancel,
		"CancelRacesDebit":         testCancelRacesDebit,
		"CancelUndecided":          testCancelUndecided,
		"Many":                     testMany,
		"None":                     testNone,
		"Turns":                    testTurns,
		"TurnsEndWithTheContext":   testTurnsEndWithTheContext,
		"OddKeys":                  testOddKeys,
		"InvalidItems":             testInvalidItems,
		"ContextEndedBefore":       testContextEndedBefore,
		"ContextEndsWhileDeciding": testContextEndsWhileDeciding,
		"Machine":                  testMachine,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
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
)

func refused(why rail.Reason) rail.Result { return rail.Result{Status: rail.Refused, Reason: why} }

// want compares results, but for their details.
func want(t TB, what string, got []rail.Result, want ...rail.Result) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d results, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i].Status != want[i].Status || got[i].Reason != want[i].Reason {
			t.Errorf("%s: result %d is %v %s (%s), want %v %s", what, i,
				got[i].Status, got[i].Reason, got[i].Detail, want[i].Status, want[i].Reason)
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
	want(t, "lookup", Lookup(ctx, t, f.Rail, keys...), final...)
	f.wantDebited(t, debited)
}

func testSlowDelaysNobody(t *testing.T, f Fixture) {
	f.open(t, models.BehaviourSlow, models.BehaviourPays)
	debits := []rail.Debit{debit("slow", "slow"), debit("fast", "pays"), debit("slow too", "slow")}
	s := newReports(len(debits))
	takeTurns(t.Context(), t, f.Rail, models.OrganisationID{}, len(debits))
	start := time.Now()
	f.Rail.Debit(t.Context(), debits, s.report)
	took := time.Since(start)
	s.check(t)
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
	want(t, "later", Debit(ctx, t, f.Rail, d), succeeded)
	f.wantDebited(t, map[string]models.Amount{"k": 100})
}

func testLostAnswer(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourAnswerLost)
	want(t, "debit", Debit(ctx, t, f.Rail, debit("a", "answerLost"), debit("b", "answerLost"), debit("c", "answerLost")),
		repeat(unknown, 3)...)
	want(t, "lookup", Lookup(ctx, t, f.Rail, "a"), succeeded)
	want(t, "the same again", Debit(ctx, t, f.Rail, debit("b", "answerLost")), succeeded)
	want(t, "cancel", Cancel(ctx, t, f.Rail, "c"), succeeded)
	f.wantDebited(t, map[string]models.Amount{"a": 100, "b": 100, "c": 100})
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

func testKeyReused(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays, models.BehaviourDeclines)
	want(t, "debit", Debit(ctx, t, f.Rail, debit("a", "pays"), debit("b", "declines")),
		succeeded, refused(rail.DeclinedByCustomer))
	amount, agreement, currency, other := debit("a", "pays"), debit("a", "declines"), debit("a", "pays"), debit("b", "pays")
	amount.Amount, currency.Currency = 101, "NZD"
	want(t, "other values", Debit(ctx, t, f.Rail, amount, agreement, currency, other),
		repeat(refused(rail.KeyReused), 4)...)
	want(t, "lookup", Lookup(ctx, t, f.Rail, "a", "b"), succeeded, refused(rail.DeclinedByCustomer))
	f.wantDebited(t, map[string]models.Amount{"a": 100})
}

func testSameKeyInOneCall(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays)
	d := debit("a", "pays")
	want(t, "debit", Debit(ctx, t, f.Rail, d, d, d), repeat(succeeded, 3)...)
	want(t, "lookup", Lookup(ctx, t, f.Rail, "a", "x", "a"), succeeded, notFound, succeeded)
	want(t, "cancel", Cancel(ctx, t, f.Rail, "x", "a", "x"), cancelled, succeeded, cancelled)
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
	want(t, "lookup", Lookup(ctx, t, f.Rail, "a", "b"), succeeded, notFound)
}

func testCancelThenDebit(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays)
	for range 2 {
		want(t, "cancel", Cancel(ctx, t, f.Rail, "a", "b"), cancelled, cancelled)
		want(t, "lookup", Lookup(ctx, t, f.Rail, "a"), cancelled)
		want(t, "debit", Debit(ctx, t, f.Rail, debit("a", "pays"), debit("c", "pays")), cancelled, succeeded)
	}
	f.wantDebited(t, map[string]models.Amount{"c": 100})
}

func testDebitThenCancel(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays, models.BehaviourLimitExceeded)
	want(t, "debit", Debit(ctx, t, f.Rail, debit("a", "pays"), debit("b", "limitExceeded")),
		succeeded, refused(rail.LimitExceeded))
	want(t, "cancel", Cancel(ctx, t, f.Rail, "a", "b"), succeeded, refused(rail.LimitExceeded))
	want(t, "debit", Debit(ctx, t, f.Rail, debit("a", "pays")), succeeded)
	f.wantDebited(t, map[string]models.Amount{"a": 100})
}

// testCancelRacesDebit lets a debit and a cancellation meet: whoever wins, both say the same.
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
		if byDebit != byCancel || byDebit != succeeded && byDebit != cancelled {
			t.Fatalf("debit says %v, cancellation says %v", byDebit, byCancel)
		}
		want(t, "lookup", Lookup(ctx, t, f.Rail, key), byDebit)
		if byDebit == succeeded {
			debited[key] = 100
		}
	}
	f.wantDebited(t, debited)
}

func testCancelUndecided(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourSlow)
	done := make(chan []rail.Result)
	go func() { done <- Debit(ctx, t, f.Rail, debit("a", "slow")) }()
	f.awaitArrival(ctx, t, "a")
	want(t, "cancel", Cancel(ctx, t, f.Rail, "a"), cancelled)
	want(t, "debit", <-done, cancelled)
	f.wantDebited(t, map[string]models.Amount{})
}

// awaitArrival asks until the rail has taken in the debit of a slow account.
func (f Fixture) awaitArrival(ctx context.Context, t TB, key string) {
	t.Helper()
	for ctx.Err() == nil {
		if r := Lookup(ctx, t, f.Rail, key)[0]; r.Status == rail.Unknown {
			return
		} else if r.Status != rail.NotFound {
			t.Fatalf("lookup of an undecided key: %v", r)
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
		debits[i], wanted[i] = debit(fmt.Sprintf("bat:%d", i), "pays"), succeeded
		debits[i].Amount = models.Amount(i + 1)
		if i%3 == 0 {
			debits[i].AgreementID, wanted[i] = "insufficientFunds", refused(rail.InsufficientFunds)
		} else {
			debited[debits[i].Key] = debits[i].Amount
		}
		keys[i] = debits[i].Key
	}
	want(t, "debit", Debit(ctx, t, f.Rail, debits...), wanted...)
	want(t, "lookup", Lookup(ctx, t, f.Rail, keys...), wanted...)
	want(t, "cancel", Cancel(ctx, t, f.Rail, keys...), wanted...)
	f.wantDebited(t, debited)
}

func testNone(t *testing.T, f Fixture) {
	Debit(t.Context(), t, f.Rail)
	Lookup(t.Context(), t, f.Rail)
	Cancel(t.Context(), t, f.Rail)
}
