// Package railtest tests payment rails and the code that uses them. Run is the conformance suite of
// every implementation of rail.Rail. Scripted is a rail in memory, for tests of code that uses a
// rail.
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

// Fixture is a rail under test, with functions that set up its accounts and inspect it.
type Fixture struct {
	Rail rail.Rail
	// Open opens the account of an agreement. The account behaves as b says.
	Open func(t TB, agreementID string, b models.Behaviour)
	// Advance advances the clock of the rail. It is nil for a rail without accounts that depend on
	// time. Run then skips the tests that need such accounts.
	Advance func(t TB, by time.Duration)
	// Debited returns the amounts that the rail has debited, by key, from the rail's own records.
	Debited func(t TB) map[string]models.Amount
	// Complete advances the rail's clock until its list has every debit made so far. No debit may
	// be under way.
	Complete func(t TB)
}

// Run runs the conformance suite. It calls open for each test, to get a fixture that no other test
// uses. The tests run in parallel.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for name, test := range map[string]func(*testing.T, Fixture){
		"LostAnswer":                  testLostAnswer,
		"Repeat":                      testRepeat,
		"Conflict":                    testConflict,
		"ConflictInOneCall":           testConflictInOneCall,
		"ConflictAtOnce":              testConflictAtOnce,
		"SameKeyInOneCall":            testSameKeyInOneCall,
		"SameKeyAtOnce":               testSameKeyAtOnce,
		"Unseen":                      testUnseen,
		"CancelThenDebit":             testCancelThenDebit,
		"DebitThenCancel":             testDebitThenCancel,
		"CancelRacesDebit":            testCancelRacesDebit,
		"Many":                        testMany,
		"None":                        testNone,
		"Admission":                   testAdmission,
		"AdmissionEndsWithTheContext": testAdmissionEndsWithTheContext,
		"OddKeys":                     testOddKeys,
		"InvalidItems":                testInvalidItems,
		"InvalidLeavesTheKey":         testInvalidLeavesTheKey,
		"ContextEndedBefore":          testContextEndedBefore,
		"Machine":                     testMachine,
		"List":                        testList,
		"ListPages":                   testListPages,
		"ListRange":                   testListRange,
		"ListWhileDebiting":           testListWhileDebiting,
		"ListRefusesQueries":          testListRefusesQueries,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
	for name, test := range map[string]func(*testing.T, Fixture){
		"Behaviours":               testBehaviours,
		"SlowDoesNotDelayOthers":   testSlowDoesNotDelayOthers,
		"BankDown":                 testBankDown,
		"CancelUndecided":          testCancelUndecided,
		"ConflictWithUndecided":    testConflictWithUndecided,
		"ContextEndsWhileDeciding": testContextEndsWhileDeciding,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			if f.Advance == nil {
				t.Skip("the rail has no accounts that depend on time")
			}
			test(t, f)
		})
	}
}

// debit returns a debit of 1.00 AUD under a key.
func debit(key, agreement string) rail.Debit {
	return rail.Debit{Key: key, AgreementID: agreement, CustomerID: "cus-1", Amount: 100, Currency: "AUD"}
}

// open opens an account for each behaviour, under an agreement with the name of the behaviour.
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

func refused(reason rail.Reason) rail.Result {
	return rail.Result{Status: rail.Refused, Reason: reason}
}

// held returns r as Lookup or Cancel reports it for a key that holds the debit.
func held(d rail.Debit, r rail.Result) rail.Result {
	r.Held = d.Particulars()
	return r
}

// heldAll returns results as Lookup or Cancel reports them for keys that hold the debits. A
// NotFound holds nothing.
func heldAll(debits []rail.Debit, results ...rail.Result) []rail.Result {
	all := slices.Clone(results)
	for i, r := range all {
		if r != notFound {
			all[i] = held(debits[i], r)
		}
	}
	return all
}

// same reports whether two results are equal. It ignores their details.
func same(a, b rail.Result) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Held == b.Held
}

// want compares results. It ignores their details. name is the name of the call.
func want(t TB, name string, got []rail.Result, want ...rail.Result) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d results, want %d", name, len(got), len(want))
	}
	for i := range got {
		if !same(got[i], want[i]) {
			t.Errorf("%s: result %d is %+v, want %+v", name, i, got[i], want[i])
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

func testSlowDoesNotDelayOthers(t *testing.T, f Fixture) {
	f.open(t, models.BehaviourSlow, models.BehaviourPays)
	debits := []rail.Debit{debit("slow", "slow"), debit("fast", "pays"), debit("slow too", "slow")}
	s := newReports(len(debits))
	admit(t.Context(), t, f.Rail, models.OrganisationID{}, len(debits))
	start := time.Now()
	f.Rail.Debit(t.Context(), debits, s.report)
	took := time.Since(start)
	s.check(t, debitResults)
	want(t, "debit", s.results, repeat(succeeded, 3)...)
	if s.order[0] != 1 {
		t.Errorf("reported in the order %v, want the fast debit first", s.order)
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
	// The Unavailable call has not fixed the particulars.
	want(t, "later", Debit(ctx, t, f.Rail, dearer), succeeded)
	want(t, "with the first particulars", Debit(ctx, t, f.Rail, d), conflict)
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

func testSameKeyInOneCall(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays)
	d := debit("a", "pays")
	want(t, "debit", Debit(ctx, t, f.Rail, d, d, d), repeat(succeeded, 3)...)
	want(t, "lookup", Lookup(ctx, t, f.Rail, "a", "x", "a"), held(d, succeeded), notFound, held(d, succeeded))
	want(t, "cancel", Cancel(ctx, t, f.Rail, "x", "a", "x"), cancelled, held(d, succeeded), cancelled)
	f.wantDebited(t, map[string]models.Amount{"a": 100})
}

// testSameKeyAtOnce lets several callers debit the same keys at once. Half of the callers list the
// keys in reverse order.
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
	concurrently(callers, func(n int) {
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

// awaitArrival waits until the rail has accepted the debit of a slow account and not decided it
// yet.
func (f Fixture) awaitArrival(ctx context.Context, t TB, d rail.Debit) {
	t.Helper()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		if r := Lookup(ctx, t, f.Rail, d.Key)[0]; same(r, held(d, unknown)) {
			return
		} else if r.Status != rail.NotFound {
			t.Fatalf("lookup of an undecided key: %+v", r)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the debit never arrived")
		case <-poll.C:
		}
	}
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
