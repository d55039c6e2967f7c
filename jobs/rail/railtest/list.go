package railtest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// farFuture is a time after every debit of a test.
const farFuture = models.Millis(4_000_000_000_000)

// List waits for admission and reads a page of the rail's list of successful debits. It checks the
// order and the bounds of the page. If the rail returns an error, List ends the test.
func List(ctx context.Context, t TB, r rail.Rail, q rail.ListQuery) rail.ListPage {
	t.Helper()
	admit(ctx, t, r, models.OrganisationID{}, 1)
	page, err := r.List(ctx, q)
	if err != nil {
		t.Fatalf("railtest: list %+v: %v", q, err)
	}
	if len(page.Debits) > q.Limit || page.More && len(page.Debits) == 0 {
		t.Errorf("railtest: %d debits with the limit %d, more %t", len(page.Debits), q.Limit, page.More)
	}
	position := q
	for _, d := range page.Debits {
		if !position.Selects(d) || d.DebitedAt < page.CompleteFrom || d.DebitedAt >= page.CompleteTo {
			t.Errorf("railtest: %+v does not belong after %+v, complete from %d to %d", d, position, page.CompleteFrom,
				page.CompleteTo)
		}
		position = position.After(d)
	}
	return page
}

// listAll reads the list from a query's position to its end. It returns the debits and the position
// from which a later call continues.
func listAll(t TB, r rail.Rail, q rail.ListQuery) (all []rail.ListedDebit, next rail.ListQuery) {
	t.Helper()
	for {
		page := List(t.Context(), t, r, q)
		all = append(all, page.Debits...)
		if page.More {
			q = q.After(page.Debits[len(page.Debits)-1])
			continue
		}
		if end := min(q.To, page.CompleteTo); end > q.From {
			q.From, q.AfterKey = end, ""
		}
		return all, q
	}
}

// wantListed checks that the list has exactly these debits.
func wantListed(t TB, got []rail.ListedDebit, want ...rail.Debit) {
	t.Helper()
	wanted := make(map[string]rail.Particulars, len(want))
	for _, d := range want {
		wanted[d.Key] = d.Particulars()
	}
	for _, d := range got {
		if wanted[d.Key] != d.Particulars {
			t.Errorf("%q is listed as %+v, want %+v", d.Key, d.Particulars, wanted[d.Key])
		}
		delete(wanted, d.Key)
	}
	if len(got) != len(want) || len(wanted) > 0 {
		t.Errorf("%d debits are listed, want %d; missing %v", len(got), len(want), wanted)
	}
}

// testList checks that the list has exactly the debits that took money. It is a test of the
// conformance suite, as are the other tests in this file.
func testList(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays, models.BehaviourInsufficientFunds, models.BehaviourAnswerLost)
	paid, lost, other := debit("b", "pays"), debit("a/é 🦆", "answerLost"), debit("c", "pays")
	other.Currency, other.Amount = "NZD", models.MaxAmount
	Debit(ctx, t, f.Rail, paid, lost, other, debit("refused", "insufficientFunds"))
	Cancel(ctx, t, f.Rail, "cancelled")
	Debit(ctx, t, f.Rail, debit("cancelled", "pays"), paid, changed(paid)[0])
	f.Complete(t)
	got, _ := listAll(t, f.Rail, rail.ListQuery{To: farFuture, Limit: rail.MaxListed})
	wantListed(t, got, paid, lost, other)
}

// testListPages reads the same list with pages of different sizes.
func testListPages(t *testing.T, f Fixture) {
	const n = 23
	f.open(t, models.BehaviourPays)
	var debits []rail.Debit
	for i := range n {
		debits = append(debits, debit(fmt.Sprint("k", i), "pays"))
	}
	Debit(t.Context(), t, f.Rail, debits[:9]...)
	f.Complete(t)
	Debit(t.Context(), t, f.Rail, debits[9:]...)
	f.Complete(t)
	for _, limit := range []int{1, 2, 7, n - 1, n, n + 1} {
		got, _ := listAll(t, f.Rail, rail.ListQuery{To: farFuture, Limit: limit})
		wantListed(t, got, debits...)
	}
	if page := List(t.Context(), t, f.Rail, rail.ListQuery{To: farFuture, Limit: n}); page.More {
		t.Errorf("more follows after all %d debits", n)
	}
}

// testListRange reads parts of the list with different From, To and AfterKey.
func testListRange(t *testing.T, f Fixture) {
	ctx := t.Context()
	f.open(t, models.BehaviourPays)
	early, late := debit("z", "pays"), debit("a", "pays")
	Debit(ctx, t, f.Rail, early)
	f.Complete(t)
	Debit(ctx, t, f.Rail, late)
	f.Complete(t)
	all, _ := listAll(t, f.Rail, rail.ListQuery{To: farFuture, Limit: 10})
	if len(all) != 2 || all[0].Key != "z" || all[1].Key != "a" || all[0].DebitedAt >= all[1].DebitedAt {
		t.Fatalf("listed as %+v", all)
	}
	first, second := all[0].DebitedAt, all[1].DebitedAt
	for _, tt := range []struct {
		from, to models.Millis
		after    string
		want     []rail.Debit
	}{
		{first, second, "", []rail.Debit{early}},
		{first, second + 1, "", []rail.Debit{early, late}},
		{first, second + 1, "y", []rail.Debit{early, late}},
		{first, second + 1, "z", []rail.Debit{late}},
		{first + 1, second + 1, "", []rail.Debit{late}},
		{first + 1, second, "", nil},
		{second, second, "", nil},
		{second, first, "", nil},
		{second + 1, farFuture, "", nil},
	} {
		got, _ := listAll(t, f.Rail, rail.ListQuery{From: tt.from, AfterKey: tt.after, To: tt.to, Limit: 1})
		wantListed(t, got, tt.want...)
	}
}

// testListWhileDebiting follows the list while debits are made. The reader must see each debit
// exactly once.
func testListWhileDebiting(t *testing.T, f Fixture) {
	const rounds, writers, each = 4, 3, 8
	f.open(t, models.BehaviourPays)
	var debits []rail.Debit
	var seen []rail.ListedDebit
	position := rail.ListQuery{To: farFuture, Limit: 3}
	for round := range rounds {
		var lists sync.WaitGroup
		lists.Go(func() {
			for range 5 {
				var got []rail.ListedDebit
				got, position = listAll(t, f.Rail, position)
				seen = append(seen, got...)
			}
		})
		made := make([][]rail.Debit, writers)
		concurrently(writers, func(n int) {
			for i := range each {
				// Keys descend: a reader that followed the keys alone would miss debits.
				d := debit(fmt.Sprintf("%03d", 999-round*100-n*10-i), "pays")
				made[n] = append(made[n], d)
				Debit(t.Context(), t, f.Rail, d)
			}
		})
		lists.Wait()
		for _, d := range made {
			debits = append(debits, d...)
		}
		f.Complete(t)
	}
	got, _ := listAll(t, f.Rail, position)
	wantListed(t, append(seen, got...), debits...)
}

// testListRefusesQueries checks that invalid queries, and a call whose context has ended, fail.
func testListRefusesQueries(t *testing.T, f Fixture) {
	for _, q := range []rail.ListQuery{
		{To: 1}, {To: 1, Limit: -1}, {To: 1, Limit: rail.MaxListed + 1},
		{From: -1, To: 1, Limit: 1}, {To: -1, Limit: 1},
		{To: 1, Limit: 1, AfterKey: ".."}, {To: 1, Limit: 1, AfterKey: "a\x00"}, {To: 1 << 60, Limit: 1},
	} {
		if page, err := f.Rail.List(t.Context(), q); err == nil {
			t.Errorf("%+v is answered %+v", q, page)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if page, err := f.Rail.List(ended, rail.ListQuery{To: farFuture, Limit: 1}); err == nil {
		t.Errorf("a call that has ended is answered %+v", page)
	}
}
