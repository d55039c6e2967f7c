package models_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// insertLinks inserts links in any states and at any times.
func (c *customers) insertLinks(t testing.TB, links []models.CustomerLink) {
	t.Helper()
	for i := range links {
		l := &links[i]
		_, err := c.store.DB().ExecContext(t.Context(), `
			INSERT INTO customer_links (site_id, id, customer_reference, state, invited_at, expires_at, linked_at,
				party, key_id)
			VALUES (?, ?, ?, ?, ?, ?, nullif(?, 0), 'sealed', ?)`,
			c.site, l.ID, l.CustomerReference, l.State, l.InvitedAt, l.ExpiresAt, l.LinkedAt, c.key)
		must(t, err)
	}
}

func anyLinks(r *rapid.T) []models.CustomerLink {
	n := rapid.IntRange(0, 12).Draw(r, "links")
	links := make([]models.CustomerLink, n)
	for i := range links {
		l := &links[i]
		*l = models.CustomerLink{ID: models.LinkID(uuid.New()), CustomerReference: fmt.Sprint("r", i),
			State:     rapid.SampledFrom(models.LinkStates).Draw(r, "state"),
			InvitedAt: noon + models.Millis(rapid.Int64Range(0, 3).Draw(r, "invitedAt")), // many equal
			ExpiresAt: noon + models.Millis(rapid.Int64Range(3, 8).Draw(r, "expiresAt"))}
		if l.State == models.LinkLinked {
			l.LinkedAt = l.InvitedAt
		}
	}
	return links
}

// naiveList is the reference implementation of the list.
func naiveList(links []models.CustomerLink, q *models.LinkQuery, now models.Millis) []models.CustomerLink {
	var out []models.CustomerLink
	for _, l := range links {
		if l.State == models.LinkInvited && now >= l.ExpiresAt {
			l.State = models.LinkExpired
		}
		if (q.State == "" || q.State == l.State) && (q.InvitedFrom == nil || l.InvitedAt >= *q.InvitedFrom) &&
			(q.InvitedTo == nil || l.InvitedAt <= *q.InvitedTo) {
			l.SiteID = q.SiteID
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b models.CustomerLink) int {
		return cmp.Or(cmp.Compare(b.InvitedAt, a.InvitedAt), cmp.Compare(b.ID.String(), a.ID.String()))
	})
	return out
}

func TestListLinksAgainstNaiveModel(t *testing.T) {
	c := newCustomers(t)
	rapid.Check(t, func(r *rapid.T) {
		c.site = c.newSite(t)
		now := noon + models.Millis(rapid.Int64Range(0, 9).Draw(r, "now"))
		modelstest.SetClock(t, c.store, now)
		links := anyLinks(r)
		c.insertLinks(t, links)
		bound := func(label string) *models.Millis {
			if !rapid.Bool().Draw(r, label+" given") {
				return nil
			}
			at := noon + models.Millis(rapid.Int64Range(-1, 4).Draw(r, label))
			return &at
		}
		q := models.LinkQuery{SiteID: c.site, Limit: rapid.IntRange(1, 5).Draw(r, "limit"), Direction: models.Forward,
			State: rapid.SampledFrom(append([]models.LinkState{""}, models.LinkStates...)).
				Draw(r, "state filter"),
			InvitedFrom: bound("from"), InvitedTo: bound("to")}
		checkWalk(t, r, c.store, q, naiveList(links, &q, now))
	})
}

// checkWalk reads every page forward, then every page backward.
func checkWalk(t testing.TB, r *rapid.T, store *models.Store, q models.LinkQuery, want []models.CustomerLink) {
	for start := 0; ; start += q.Limit {
		page, err := store.ListLinks(t.Context(), q)
		must(r, err)
		end := min(start+q.Limit, len(want))
		if diff := gocmp.Diff(append([]models.CustomerLink{}, want[start:end]...), page.Items); diff != "" {
			r.Fatalf("from %d: %s", start, diff)
		}
		checkPage(r, page, len(want), start > 0, end < len(want))
		if page.Next == nil {
			walkBack(t, r, store, q, want, page.Prev, start)
			return
		}
		q.At = *page.Next
	}
}

func walkBack(
	t testing.TB, r *rapid.T, store *models.Store, q models.LinkQuery, want []models.CustomerLink,
	from *models.LinkPosition, end int,
) {
	for q.Direction = models.Backward; from != nil; end -= q.Limit {
		q.At = *from
		page, err := store.ListLinks(t.Context(), q)
		must(r, err)
		start := max(end-q.Limit, 0)
		if diff := gocmp.Diff(want[start:end], page.Items); diff != "" {
			r.Fatalf("back from %d: %s", end, diff)
		}
		checkPage(r, page, len(want), start > 0, true)
		from = page.Prev
	}
}

func checkPage(r *rapid.T, page models.LinkPage, total int, prev, next bool) {
	if int(page.Total) != total || (page.Prev != nil) != prev || (page.Next != nil) != next {
		r.Fatalf("total %d, prev %v, next %v; want %d, %v, %v", page.Total, page.Prev, page.Next, total, prev, next)
	}
}

// A page whose items stopped matching is empty, and still links to the other pages.
func TestListLinksEmptiedPage(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	for i := range 4 {
		c.invite(t, fmt.Sprint(i))
	}
	q := models.LinkQuery{SiteID: c.site, State: models.LinkInvited, Direction: models.Forward, Limit: 2}
	first, err := c.store.ListLinks(t.Context(), q)
	must(t, err)
	for _, l := range c.linksBehind(t, q, first) {
		_, err := c.store.RevokeLink(t.Context(), l.ID)
		must(t, err)
	}
	q.At = *first.Next
	empty, err := c.store.ListLinks(t.Context(), q)
	must(t, err)
	if len(empty.Items) != 0 || empty.Next != nil || empty.Prev == nil || empty.Total != 2 {
		t.Fatalf("got %+v", empty)
	}
	q.Direction, q.At = models.Backward, *empty.Prev
	back, err := c.store.ListLinks(t.Context(), q)
	must(t, err)
	if diff := gocmp.Diff(first.Items, back.Items); diff != "" || back.Next != nil || back.Prev != nil {
		t.Errorf("back: %+v: %s", back, diff)
	}
	for _, l := range first.Items {
		_, err := c.store.RevokeLink(t.Context(), l.ID)
		must(t, err)
	}
	c.invite(t, "after all") // above every position so far
	q.Direction, q.At = models.Backward, models.LinkPosition{At: noon + 1}
	top, err := c.store.ListLinks(t.Context(), q)
	must(t, err)
	if len(top.Items) != 0 || top.Prev != nil || top.Next == nil {
		t.Fatalf("above everything: %+v", top)
	}
	q.Direction, q.At = models.Forward, *top.Next
	again, err := c.store.ListLinks(t.Context(), q)
	must(t, err)
	if len(again.Items) != 1 || again.Prev != nil || again.Next != nil {
		t.Errorf("forward again: %+v", again)
	}
}

func (c *customers) linksBehind(t testing.TB, q models.LinkQuery, page models.LinkPage) []models.CustomerLink {
	t.Helper()
	q.At = *page.Next
	rest, err := c.store.ListLinks(t.Context(), q)
	must(t, err)
	return rest.Items
}

func TestListLinksOfARangeBeforeAll(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	for _, state := range append([]models.LinkState{""}, models.LinkStates...) {
		for _, direction := range []models.Direction{models.Forward, models.Backward} {
			page, err := store.ListLinks(t.Context(), models.LinkQuery{
				SiteID: site.ID, State: state, InvitedTo: new(models.Millis(-5)), Limit: 10, Direction: direction,
			})
			if err != nil || page.Total != 0 || len(page.Items) != 0 {
				t.Errorf("%q, direction %v: %+v, %v", state, direction, page, err)
			}
		}
	}
}

func TestListLinksRefusesBadQueries(t *testing.T) {
	c := newCustomers(t)
	for _, q := range []models.LinkQuery{{Limit: 0}, {Limit: 101}, {Limit: 1, State: "Invited"},
		{Limit: 1, State: "true; --"}} {
		if _, err := c.store.ListLinks(t.Context(), q); err == nil {
			t.Errorf("%+v was taken", q)
		}
	}
}

// While eight writers invite and sign up, walks in both directions find every link that matched
// throughout exactly once.
func TestListLinksWhileWritersWrite(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	steady := map[models.LinkID]bool{}
	for i := range 60 { // at 20 instants, three each
		if i%3 == 0 {
			c.advance(t, time.Millisecond)
		}
		steady[c.invite(t, fmt.Sprint("steady ", i)).ID] = true
	}
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() { c.write(t, w) })
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for writing := true; writing; {
		select {
		case <-done:
			writing = false // once more, without writers
		default:
		}
		for _, state := range []models.LinkState{"", models.LinkInvited} {
			q := models.LinkQuery{SiteID: c.site, State: state, Limit: 7, Direction: models.Forward}
			checkOnce(t, "forward", c.walk(t, q), steady)
			q.Direction = models.Backward
			checkOnce(t, "backward", c.walk(t, q), steady)
		}
	}
}

// write invites customers, signs half of them up and revokes some, with the clock moving on and
// standing still.
func (c *customers) write(t testing.TB, writer int) {
	for i := range 60 {
		link, err := c.create(t.Context(), fmt.Sprintf("writer %d, %d", writer, i))
		if err == nil && i%2 == 0 {
			_, err = c.store.CompleteLink(t.Context(), link.ID, alice)
		}
		if err == nil && i%5 == 0 {
			_, err = c.store.RevokeLink(t.Context(), link.ID)
		}
		if err != nil {
			t.Errorf("writer %d: %v", writer, err)
			return
		}
		if i%4 == writer%4 {
			c.advance(t, time.Millisecond)
		}
	}
}

// walk reads all pages, from the list's beginning or its end.
func (c *customers) walk(t testing.TB, q models.LinkQuery) (links []models.CustomerLink) {
	t.Helper()
	for {
		page, err := c.store.ListLinks(t.Context(), q)
		must(t, err)
		links = append(links, page.Items...)
		next := page.Next
		if q.Direction == models.Backward {
			next = page.Prev
		}
		if next == nil {
			return links
		}
		q.At = *next
	}
}

func checkOnce(t testing.TB, walk string, links []models.CustomerLink, steady map[models.LinkID]bool) {
	t.Helper()
	seen := map[models.LinkID]int{}
	for _, l := range links {
		seen[l.ID]++
	}
	for id, n := range seen {
		if n > 1 {
			t.Errorf("%s: %v was seen %d times", walk, id, n)
		}
	}
	for id := range steady {
		if seen[id] != 1 {
			t.Errorf("%s: %v was seen %d times", walk, id, seen[id])
		}
	}
}
