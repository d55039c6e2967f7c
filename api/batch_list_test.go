package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
)

type batchPage struct {
	Items              []batchData
	TotalItems         int
	NextHref, PrevHref string
}

// link returns a pagination link as a path of the server under test.
func link(href string) string { return strings.TrimPrefix(href, publicURL) }

func (b *billing) batchPage(t testing.TB, path string) batchPage {
	t.Helper()
	return dataOf[batchPage](b.Get(path).Expect(200))
}

func TestBatchListAnswers(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	golden(t, "batches-none", b.Get(b.batches("")).Expect(200))
	chunk := b.submit(t, "settled", "ada", "bob")
	b.finish(t, chunk, outcomes(models.OutcomeSucceeded, models.OutcomeDeclined)...)
	b.advance(t, time.Millisecond)
	chunk = b.submit(t, "under way", "ada", "bob", "eve")
	b.finish(t, chunk, models.RowResult{Index: 0, Outcome: models.OutcomeSucceeded},
		models.RowResult{Index: 1, Release: true})
	b.advance(t, time.Millisecond)
	b.Post(b.batches(""), bodyOf("new", "ada")).Expect(202)

	golden(t, "batches", b.Get(b.batches("")).Expect(200))
	golden(t, "batches-first-page", b.Get(b.batches("?limit=1")).Expect(200))
	middle := b.Get(link(b.batchPage(t, b.batches("?limit=1")).NextHref)).Expect(200)
	golden(t, "batches-middle-page", middle)
	golden(t, "batches-last-page", b.Get(link(dataOf[batchPage](middle).NextHref)).Expect(200))
	golden(t, "batches-invalid-parameter", b.Get(b.batches("?limit=0&state=Settled&submittedFrom=-&submittedTo=")).
		Expect(400))
	golden(t, "batches-invalid-pagination-link", b.Get(b.batches("?cursor=x")).Expect(400))
}

func TestBatchListFilters(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	for i := range 4 {
		chunk := b.submit(t, fmt.Sprint(i), "ada")
		if i%2 == 0 {
			b.finish(t, chunk, outcomes(models.OutcomeSucceeded)...)
		}
		b.advance(t, time.Millisecond)
	}
	for query, want := range map[string][]string{
		"":                   {"3", "2", "1", "0"},
		"?state=settled":     {"2", "0"},
		"?state=inProgress":  {"3", "1"},
		"?submittedFrom=%d1": {"3", "2", "1"},
		"?submittedFrom=-9223372036854775808&submittedTo=9223372036854775807": {"3", "2", "1", "0"},
		"?submittedTo=-1": nil, "?submittedFrom=9223372036854775807": nil,
		"?submittedTo=%d1": {"1", "0"},
		"?submittedFrom=%d1&submittedTo=%d2&state=settled": {"2"},
		"?submittedFrom=%d2&submittedTo=%d1":               nil,
		"?submittedTo=0":                                   nil,
	} {
		page := b.batchPage(t, b.batches(strings.ReplaceAll(query, "%d", fmt.Sprint(int64(noon)/10))))
		if diff := cmp.Diff(want, referencesOf(page)); diff != "" || page.TotalItems != len(want) ||
			page.NextHref != "" || page.PrevHref != "" {
			t.Errorf("%s: %+v%s", query, page, diff)
		}
	}
	for _, query := range []string{"?limit=101", "?limit=x", "?limit=", "?limit=1&limit=1", "?state=", "?state=pending",
		"?submittedFrom=x", "?submittedTo=1.0"} {
		name, _, _ := strings.Cut(query, "=")
		b.Get(b.batches(query)).Refused(400, "batches:invalid-parameter "+strings.TrimPrefix(name, "?"))
	}
	b.Get(b.batches("?invitedFrom=1")).Refused(400, "batches:invalid-parameter invitedFrom")
}

func referencesOf(page batchPage) []string {
	var list []string
	for _, item := range page.Items {
		list = append(list, item.BatchReference)
	}
	return list
}

// The clock stands still, so that all timestamps but two are equal.
func TestBatchListWalk(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	want := []string{}
	for i := range 13 {
		b.Post(b.batches(""), bodyOf(fmt.Sprint(i), "ada")).Expect(202)
		want = append(want, fmt.Sprint(i))
		if i == 0 || i == 11 {
			b.advance(t, time.Millisecond)
		}
	}
	slices.Reverse(want)
	var forward, backward []string
	page := b.batchPage(t, b.batches("?limit=5&submittedFrom=0"))
	forward = referencesOf(page)
	b.Post(b.batches(""), bodyOf("newer", "ada")).Expect(202) // newer than the first page, so the walk must not see it
	b.Post(b.batch("4", "/cancellation"), nil).Expect(200)    // a change during the walk
	for page.NextHref != "" {
		page = b.batchPage(t, link(page.NextHref))
		forward = append(forward, referencesOf(page)...)
		if page.TotalItems != 14 {
			t.Errorf("%d items in all", page.TotalItems)
		}
	}
	if diff := cmp.Diff(want, forward); diff != "" {
		t.Errorf("forward: %s", diff)
	}
	backward = referencesOf(page)
	for page.PrevHref != "" {
		page = b.batchPage(t, link(page.PrevHref))
		backward = append(referencesOf(page), backward...)
	}
	if diff := cmp.Diff(append([]string{"newer"}, want...), backward); diff != "" {
		t.Errorf("backward: %s", diff)
	}
}

func TestBatchPaginationLinks(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	for i := range 2 {
		b.Post(b.batches(""), bodyOf(fmt.Sprint(i), "ada")).Expect(202)
		b.invite(t, fmt.Sprint(i))
	}
	next := link(b.batchPage(t, b.batches("?limit=1&state=inProgress")).NextHref)
	_, cursor, _ := strings.Cut(next, "?")
	const fault = "batches:invalid-pagination-link nextHref"
	b.Get(next+"&limit=1").Refused(400, fault)
	b.Get(next+"A").Refused(400, fault)
	b.Get("/billing/sites/"+b.sister.String()+"/batches?"+cursor).Refused(400, fault)
	b.other.Get("/billing/sites/"+b.otherSite.String()+"/batches?"+cursor).Refused(400, fault)
	b.Get(b.customers("?"+cursor)).Refused(400, "customers:invalid-pagination-link nextHref")
	_, cursor, _ = strings.Cut(dataOf[customerPage](b.Get(b.customers("?limit=1"))).NextHref, "?")
	b.Get(b.batches("?"+cursor)).Refused(400, fault)
	b.advance(t, 24*time.Hour-time.Millisecond)
	b.Get(next).Expect(200)
	b.advance(t, time.Millisecond)
	b.Get(next).Refused(400, fault)
}
