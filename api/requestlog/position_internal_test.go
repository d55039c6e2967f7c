package requestlog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
)

// addRequests adds n requests, whose durations count them from a number.
func addRequests(l *Log, organisation models.OrganisationID, from, n int) {
	for i := range n {
		l.Add(organisation, LoggedRequest{
			Method: "GET", Took: time.Duration(from + i), At: time.UnixMilli(int64(from + i)),
		})
	}
}

// readAll reads the requests after a position page by page, and returns their durations.
func readAll(l *Log, organisation models.OrganisationID, at Position) (took []int, end Position) {
	for more := true; more; {
		var found []Entry
		found, at, more = l.After(organisation, at, 7, func(*LoggedRequest) bool { return true })
		for _, e := range found {
			took = append(took, int(e.Took))
		}
	}
	return took, at
}

func numbers(from, to int) (all []int) {
	for n := from; n < to; n++ {
		all = append(all, n)
	}
	return all
}

// A position stays valid while the log drops older requests. After a dropped request, the log goes
// on with its oldest one.
func TestPositionOutlivesDroppedRequests(t *testing.T) {
	t.Parallel()
	l, a := New(), organisation()
	addRequests(l, a, 1, 20)
	took, at := readAll(l, a, Position{})
	if diff := cmp.Diff(numbers(1, 21), took); diff != "" {
		t.Errorf("from the beginning:\n%s", diff)
	}
	addRequests(l, a, 21, MaxRequests)
	took, end := readAll(l, a, at)
	if diff := cmp.Diff(numbers(21, MaxRequests+21), took); diff != "" {
		t.Errorf("after the 20th:\n%s", diff)
	}
	addRequests(l, a, MaxRequests+21, 5)
	took, _ = readAll(l, a, at)
	if diff := cmp.Diff(numbers(26, MaxRequests+26), took); diff != "" {
		t.Errorf("after a dropped request:\n%s", diff)
	}
	took, _ = readAll(l, a, end)
	if diff := cmp.Diff(numbers(MaxRequests+21, MaxRequests+26), took); diff != "" {
		t.Errorf("after the end of before:\n%s", diff)
	}
}

// A list that gave way to other organisations begins anew. A position of the former one counts by
// its time.
func TestPositionOutlivesItsList(t *testing.T) {
	t.Parallel()
	l, a := New(), organisation()
	addRequests(l, a, 1, 3)
	_, at := readAll(l, a, Position{})
	for range maxRequestOrgs {
		addRequests(l, organisation(), 1, 1)
	}
	if got := l.Latest(a); len(got) != 0 {
		t.Fatalf("%d requests are left", len(got))
	}
	addRequests(l, a, 4, 2)
	took, _ := readAll(l, a, at)
	if diff := cmp.Diff([]int{4, 5}, took); diff != "" {
		t.Error(diff)
	}
}

func TestParsePosition(t *testing.T) {
	t.Parallel()
	l, a := New(), organisation()
	before := l.End(a, time.UnixMilli(5))
	addRequests(l, a, 1, 1)
	for _, p := range []Position{before, l.End(a, time.UnixMilli(5)), {"A", 999_999_999_999_999_999, 0}} {
		if got, err := ParsePosition(p.String()); err != nil || got != p {
			t.Errorf("%s: %+v, %v", p, got, err)
		}
	}
}

// A watch hears of the requests of its organisation alone, and leaves nothing behind.
func TestWatch(t *testing.T) {
	t.Parallel()
	l, a, b := New(), organisation(), organisation()
	first, second := l.Watch(a), l.Watch(a)
	version, changed := first.Version()
	addRequests(l, b, 1, 1)
	select {
	case <-changed:
		t.Fatal("told of another organisation's request")
	default:
	}
	addRequests(l, a, 1, 1)
	<-changed
	if now, _ := second.Version(); version == 0 || now != version+1 {
		t.Errorf("version %d, then %d", version, now)
	}
	first.Close()
	_, changed = second.Version()
	addRequests(l, a, 2, 1)
	<-changed
	second.Close()
	if len(l.watches.open) != 0 {
		t.Errorf("%d watches are left", len(l.watches.open))
	}
}
