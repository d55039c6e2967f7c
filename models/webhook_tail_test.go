package models_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
)

func (w *webhooks) tail(after *models.WebhookStreamPosition) *models.WebhookTail {
	w.t.Helper()
	tail, err := w.TailWebhooks(w.t.Context(), w.site.OrganisationID, after)
	must(w.t, err)
	return tail
}

// next reads from a tail until it has n events. Transactions of other tests may hold some back for
// a moment.
func (w *webhooks) next(tail *models.WebhookTail, n int) (all []models.WebhookStreamed) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	for {
		events, _, err := tail.Next(ctx)
		must(w.t, err)
		if all = append(all, events...); len(all) >= n {
			return all
		}
	}
}

func (w *webhooks) wantNext(tail *models.WebhookTail, want ...models.WebhookEventID) []models.WebhookStreamed {
	w.t.Helper()
	events := w.next(tail, len(want))
	got := make([]models.WebhookEventID, len(events))
	for i, e := range events {
		got[i] = e.ID
		if len(e.Body) == 0 || e.Type != models.EventTransactionStatus || e.Position.ID != e.ID {
			w.t.Errorf("streamed %+v", e)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
		w.t.Errorf("tail (-want +got):\n%s", diff)
	}
	return events
}

func TestWebhookTail(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	before, _ := w.insert()
	tail := w.tail(nil)
	start := tail.Position()
	w.wantNext(tail)
	first, _ := w.insert()
	second, _ := w.insert()
	streamed := w.wantNext(tail, first, second)
	w.wantNext(tail)
	for range 2 { // a redelivery is streamed each time, also within one millisecond
		_, _, err := w.RedeliverWebhook(t.Context(), w.site.OrganisationID, before)
		must(t, err)
		w.wantNext(tail, before)
	}
	w.wantNext(tail)

	// An interrupted stream resumes after its last event, or at its start.
	w.wantNext(w.tail(&start), first, second, before)
	w.wantNext(w.tail(&streamed[0].Position), second, before)
	end := tail.Position()
	w.wantNext(w.tail(&end))

	// After a day there is nothing left to resume.
	w.advance(models.WebhookResumeWithin)
	third, _ := w.insert()
	w.wantNext(w.tail(&start), first, second, before, third)
	w.advance(time.Millisecond)
	w.wantNext(w.tail(&start), third)
}

// A page of large events ends by its bytes, and has at least one.
func TestWebhookTailBoundsTheBytesOfAPage(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	tail := w.tail(nil)
	var want []models.WebhookEventID
	for _, kilobytes := range []int{60, 60, 60, 200, 1} {
		push := w.push()
		push.TransactionStatusDescription = strings.Repeat("x", kilobytes<<10)
		id, _, err := w.InsertWebhookEvent(t.Context(), w.site.OrganisationID, models.NewTraceID(), push)
		must(t, err)
		want = append(want, id)
	}
	w.wantNext(w.tail(new(tail.Position())), want...) // nothing hides them any more
	for i, size := range []int{3, 1, 1} {
		events, more, err := tail.Next(t.Context())
		must(t, err)
		if len(events) != size || more != (i < 2) {
			t.Errorf("page %d: %d events, more %t", i, len(events), more)
		}
		for _, e := range events {
			if e.ID != want[0] {
				t.Errorf("got %s, want %s", e.ID, want[0])
			}
			want = want[1:]
		}
	}
}

// A stream neither skips nor overtakes the event of a long transaction.
func TestWebhookTailWaitsForTransactions(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	tail := w.tail(nil)
	slow, err := w.DB().BeginTx(t.Context(), nil)
	must(t, err)
	if _, err := slow.ExecContext(t.Context(), "SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	fast, _ := w.insert()
	if events, _, err := tail.Next(t.Context()); err != nil || len(events) != 0 {
		t.Errorf("overtaken by %v, %v", events, err)
	}
	if last, err := w.LastWebhook(t.Context(), w.site.OrganisationID); err != nil || !last.ID.IsZero() {
		t.Errorf("the last event is %v, %v", last, err)
	}
	late, _ := w.insert()
	if _, err := slow.ExecContext(t.Context(),
		"UPDATE webhook_events SET requested_in = pg_current_xact_id() WHERE id = ?", late); err != nil {
		t.Fatal(err)
	}
	must(t, slow.Commit())
	events := w.wantNext(tail, late, fast)
	if last, err := w.LastWebhook(t.Context(), w.site.OrganisationID); err != nil || last != events[1].Position {
		t.Errorf("the last event is %v, %v, want %v", last, err, events[1].Position)
	}
}

// Streams that are interrupted at random and resumed deliver every event of concurrent writers
// once.
func TestWebhookTailNeitherLosesNorRepeats(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	const writers, each = 8, 40
	tail := w.tail(nil)
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for range each {
				if _, _, err := w.InsertWebhookEvent(t.Context(), w.site.OrganisationID, models.NewTraceID(),
					w.push()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	got := map[models.WebhookEventID]int{}
	at := tail.Position()
	for total := 0; total < writers*each; {
		events, _, err := tail.Next(t.Context())
		must(t, err)
		for _, e := range events[:rand.IntN(len(events)+1)] { // where the stream is cut off
			got[e.ID]++
			total++
			at, err = models.ParseWebhookStreamPosition(e.Position.String())
			must(t, err)
		}
		tail = w.tail(&at)
	}
	writing.Wait()
	for id, n := range got {
		if n != 1 {
			t.Errorf("%s came %d times", id, n)
		}
	}
	if len(got) != writers*each {
		t.Errorf("%d events of %d", len(got), writers*each)
	}
}

func TestWebhookStreamPositionText(t *testing.T) {
	t.Parallel()
	id := models.NewWebhookEventID()
	for _, at := range []models.WebhookStreamPosition{{Transaction: 1<<64 - 1, ID: id}, {Transaction: 7}} {
		if got, err := models.ParseWebhookStreamPosition(at.String()); err != nil || got != at {
			t.Errorf("%s: %+v, %v", at, got, err)
		}
	}
	for _, text := range []string{
		"", ":", "7", id.String(), id.String() + ":", id.String() + ":-1", id.String() + ":07", id.String() + ":7 ",
		id.String() + ":7:7", id.String() + ":18446744073709551616", "x" + id.String() + ":7",
	} {
		if got, err := models.ParseWebhookStreamPosition(text); !errors.Is(err, models.ErrInvalidID) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
