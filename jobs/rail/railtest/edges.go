package railtest

import (
	"context"
	"strings"
	"sync"
	"testing"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// oddKeys are valid keys that an adapter confuses if it builds a URL or an SQL statement
// carelessly.
var oddKeys = []string{
	"a/b", "a%2Fb", "a%2fb", "a//b", "/", "//", "a/../b", "...", ".a", "%", "%%", "%2E%2E",
	"a+b", "a b", " ", "a?b=c", "a#b",
	"a;b", "a:b", "a&b", "'", `"`, `\`, "a\\'b", "$1", "{key}", "<&>", "é", "e\u0301", "\u2028", "日本", "🦆", "A", "a",
	"cancellation", "a/cancellation", "null", strings.Repeat("🦆", models.MaxReferenceLength),
}

// testOddKeys debits, looks up and cancels odd keys. It is a test of the conformance suite, as are
// the other tests in this file.
func testOddKeys(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays)
	debited := make(map[string]models.Amount)
	var debits []rail.Debit
	for i, key := range oddKeys {
		d := debit(key, "pays")
		d.Amount = models.Amount(i + 1)
		debits = append(debits, d)
		debited[key] = d.Amount
	}
	n := len(oddKeys)
	want(t, "lookup before", Lookup(ctx, t, f.Rail, oddKeys...), repeat(notFound, n)...)
	want(t, "debit", Debit(ctx, t, f.Rail, debits...), repeat(succeeded, n)...)
	truth := heldAll(debits, repeat(succeeded, n)...)
	want(t, "lookup", Lookup(ctx, t, f.Rail, oddKeys...), truth...)
	want(t, "cancel", Cancel(ctx, t, f.Rail, oddKeys...), truth...)
	f.wantDebited(t, debited)
}

// testInvalidItems mixes valid and invalid items in one call.
func testInvalidItems(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays)
	invalidKeys := []string{
		"", ".", "..", "\x00", "a\nb", "a\x7f", "a\u202e", "\xff", "a\xc3",
		strings.Repeat("a", models.MaxReferenceLength+1),
	}
	debits := []rail.Debit{debit("good", "pays")}
	keys := []string{"good"}
	for _, key := range invalidKeys {
		debits, keys = append(debits, debit(key, "pays")), append(keys, key)
	}
	for _, change := range invalidChanges {
		d := debit("changed", "pays")
		change(&d)
		debits = append(debits, d)
	}
	refusals, unknowns := repeat(invalid, len(debits)-1), repeat(unknown, len(invalidKeys))
	good := held(debits[0], succeeded)
	want(t, "debit", Debit(ctx, t, f.Rail, debits...), append([]rail.Result{succeeded}, refusals...)...)
	want(t, "lookup", Lookup(ctx, t, f.Rail, keys...), append([]rail.Result{good}, unknowns...)...)
	want(t, "cancel", Cancel(ctx, t, f.Rail, keys...), append([]rail.Result{good}, unknowns...)...)
	f.wantDebited(t, map[string]models.Amount{"good": 100})

	largest := debit("largest", "pays")
	largest.Amount = models.MaxAmount
	want(t, "the largest amount", Debit(ctx, t, f.Rail, largest), succeeded)
	want(t, "lookup of the largest", Lookup(ctx, t, f.Rail, "largest"), held(largest, succeeded))
}

// invalidChanges are changes that make a valid debit invalid, under the same key.
var invalidChanges = []func(*rail.Debit){
	func(d *rail.Debit) { d.Amount = 0 },
	func(d *rail.Debit) { d.Amount = -100 },
	func(d *rail.Debit) { d.Amount = models.MaxAmount + 1 },
	func(d *rail.Debit) { d.Currency = "" },
	func(d *rail.Debit) { d.Currency = "aud" },
	func(d *rail.Debit) { d.Currency = "A\x00D" },
	func(d *rail.Debit) { d.Currency = "\xff\xff\xff" },
	func(d *rail.Debit) { d.Currency = "AUDD" },
	func(d *rail.Debit) { d.AgreementID = "" },
	func(d *rail.Debit) { d.AgreementID = "\x00" },
	func(d *rail.Debit) { d.AgreementID = "\xff" },
	func(d *rail.Debit) { d.CustomerID = "\xff" },
}

// testInvalidLeavesTheKey makes invalid debits before and after other calls under the same keys.
// They are always Invalid, and do not change the keys.
func testInvalidLeavesTheKey(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays, models.BehaviourDeclines)
	paid, declined := debit("paid", "pays"), debit("declined", "declines")
	byCustomer := refused(rail.DeclinedByCustomer)
	keys := []string{"paid", "declined", "closed"}
	tryInvalid := func(truth ...rail.Result) {
		t.Helper()
		for _, change := range invalidChanges {
			debits := []rail.Debit{paid, declined, debit("closed", "pays")}
			for i := range debits {
				change(&debits[i])
			}
			want(t, "invalid", Debit(ctx, t, f.Rail, debits...), repeat(invalid, len(debits))...)
		}
		want(t, "lookup", Lookup(ctx, t, f.Rail, keys...), truth...)
	}
	tryInvalid(notFound, notFound, notFound)
	want(t, "valid", Debit(ctx, t, f.Rail, paid, declined), succeeded, byCustomer)
	want(t, "cancel", Cancel(ctx, t, f.Rail, "closed"), cancelled)
	tryInvalid(held(paid, succeeded), held(declined, byCustomer), cancelled)
	want(t, "valid again", Debit(ctx, t, f.Rail, paid, declined), succeeded, byCustomer)
	f.wantDebited(t, map[string]models.Amount{"paid": 100})
}

// testContextEndedBefore makes calls whose context has ended. They must have no effect.
func testContextEndedBefore(t *testing.T, f Fixture) {
	f.open(t, models.BehaviourPays)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	want(t, "debit", Debit(ended, t, f.Rail, debit("a", "pays"), debit("b", "pays")), unavailable, unavailable)
	want(t, "lookup", Lookup(ended, t, f.Rail, "a"), unknown)
	want(t, "cancel", Cancel(ended, t, f.Rail, "a"), unknown)
	f.wantDebited(t, map[string]models.Amount{})
	want(t, "debit in time", Debit(t.Context(), t, f.Rail, debit("a", "pays")), succeeded)
}

// testContextEndsWhileDeciding ends the context while the rail decides a slow debit.
func testContextEndsWhileDeciding(t *testing.T, f Fixture) {
	f.open(t, models.BehaviourPays, models.BehaviourSlow)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan []rail.Result)
	go func() { done <- Debit(ctx, t, f.Rail, debit("slow", "slow"), debit("fast", "pays")) }()
	f.awaitArrival(t.Context(), t, debit("slow", "slow"))
	// The fast debit of the same call may have been sent by now. If not, it never will be.
	cancel()
	got := <-done
	want(t, "slow", got[:1], unknown)
	fast := f.Debited(t)["fast"]
	if got[1].Status == rail.Succeeded && fast == 0 || got[1].Status == rail.Unavailable && fast != 0 {
		t.Errorf("the fast debit is reported as %v, and the rail has debited %d", got[1], fast)
	}
	final := Cancel(t.Context(), t, f.Rail, "slow", "fast")
	for i, r := range final {
		if !r.Status.Final() {
			t.Errorf("cancellation %d is %v, want a final status", i, r)
		}
	}
	want(t, "afterwards", Lookup(t.Context(), t, f.Rail, "slow", "fast"), final...)
}

// testAdmission lets several organisations ask for admission at once, each until all its requests
// are admitted. A caller that asks for fewer than one gets none.
func testAdmission(t *testing.T, f Fixture) {
	const organisations, each = 8, 30
	concurrently(organisations, func(n int) {
		admit(t.Context(), t, f.Rail, models.OrganisationID{byte(n)}, each)
	})
	for _, n := range []int{0, -1} {
		if got := f.Rail.Admit(t.Context(), models.OrganisationID{1}, n); got != 0 {
			t.Errorf("%d of %d requests are admitted", got, n)
		}
	}
}

func testAdmissionEndsWithTheContext(t *testing.T, f Fixture) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := f.Rail.Admit(ended, models.OrganisationID{1}, 3); got != 0 {
		t.Errorf("%d requests are admitted after the context ended", got)
	}
	want(t, "afterwards", Lookup(t.Context(), t, f.Rail, "a"), notFound)
}

// concurrently calls do for 0 to n-1 in goroutines that start at once, and waits for them.
func concurrently(n int, do func(n int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	wg.Wait()
}
