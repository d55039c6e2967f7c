package api_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/models"
)

func TestBatchAnswers(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	chunk := b.submit(t, "mixed", customersFor(5)...)
	golden(t, "batch-claimed", b.Get(b.batch("mixed", "")).Expect(200))
	b.finish(t, chunk, models.RowResult{Index: 0, Outcome: models.OutcomeSucceeded},
		models.RowResult{Index: 1, Outcome: models.OutcomeInsufficientFunds},
		models.RowResult{Index: 2, Release: true, RetryAfter: 5 * time.Minute},
		models.RowResult{Index: 3, RetryAfter: time.Minute})
	golden(t, "batch-in-progress", b.Get(b.batch("mixed", "")).Expect(200))

	b.advance(t, time.Second)
	chunk = b.submit(t, "every outcome", customersFor(len(models.RowOutcomes))...)
	b.finish(t, chunk, outcomes(models.RowOutcomes...)...)
	golden(t, "batch-settled", b.Get(b.batch("every outcome", "")).Expect(200))
	b.finish(t, chunk, models.RowResult{Index: slices.Index(models.RowOutcomes, models.OutcomeTimedOut),
		Outcome: models.OutcomeSucceeded})
	golden(t, "batch-corrected", b.Get(b.batch("every outcome", "")).Expect(200))
	golden(t, "batch-not-found", b.Get(b.batch("none", "")).Expect(404))
	for _, path := range []string{"/billing/sites/" + b.sister.String() + "/batches/mixed", b.batches("/."),
		b.batches("/%ff")} {
		b.Get(path).Refused(404, "batches:batch-not-found batchReference")
	}
}

func TestBatchReferencesRoundTripThroughPaths(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	references := append([]string{"validation", "2026/11 #7+é", "%2F", "a%2Fb"}, awkward...)
	for _, reference := range references {
		body := map[string]any{"batchReference": reference, "rows": []any{
			map[string]any{"customerReference": reference, "rowReference": reference, "amount": 1},
		}}
		made := b.Post(b.batches(""), body).Expect(202)
		for _, path := range []string{made.Header.Get("Location"), b.batch(reference, ""),
			b.batches("/" + encodeAll(reference))} {
			got := dataOf[batchData](b.Get(path).Expect(200))
			if got.BatchReference != reference || got.Rows[0].RowReference != reference ||
				got.Rows[0].CustomerReference != reference {
				t.Errorf("%q came back as %+v", reference, got)
			}
		}
		b.Get(b.batch(reference, "/rows")).Expect(200)
		b.Post(b.batch(reference, "/cancellation"), nil).Expect(200)
		b.Post(b.batch(reference, "/retry"), `{"batchReference":"again"}`).
			Refused(409, "batches:nothing-to-retry batchReference")
	}
	list := dataOf[batchPage](b.Get(b.batches("?limit=100")).Expect(200))
	if len(list.Items) != len(references) {
		t.Errorf("%d of %d references are listed", len(list.Items), len(references))
	}
}

func TestBatchETag(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	chunk := b.submit(t, "b", "ada", "bob")
	get := func(known string) *apitest.Answer { return b.With("If-None-Match", known).Get(b.batch("b", "")) }
	first := b.Get(b.batch("b", "")).Expect(200)
	etag := first.Header.Get("ETag")
	if again := b.Get(b.batch("b", "")).Header.Get("ETag"); again != etag || !strings.HasPrefix(etag, `W/"`) {
		t.Fatalf("ETag %s, then %s", etag, again)
	}
	for _, known := range []string{etag, strings.TrimPrefix(etag, "W/"), "*", " * ", `"x", ` + etag,
		`"x,y" ,, W/"z",` + etag, etag + `, "x"`} {
		a := get(known).Expect(304)
		if len(a.Body) != 0 || a.Header.Get("ETag") != etag || a.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: %v %s", known, a.Header, a.Body)
		}
	}
	for _, known := range []string{"", "x", `"x"`, `W/"x", "*"`, strings.Trim(etag, `W/"`),
		strings.ToLower(etag[:3]) + etag[3:],
		strings.TrimSuffix(etag, `"`), `x, ` + etag} {
		get(known).Expect(200)
	}
	if a := b.With("If-None-Match", etag).Send("HEAD", b.batch("b", ""), nil).
		Expect(304); a.Header.Get("ETag") != etag {
		t.Errorf("HEAD: %v", a.Header)
	}
	b.With("If-None-Match", "*").Get(b.batch("none", "")).Refused(404, "batches:batch-not-found batchReference")

	b.finish(t, chunk, models.RowResult{Index: 0, Release: true, RetryAfter: time.Minute})
	second := get(etag).Expect(200)
	if second.Header.Get("ETag") == etag || second.Header.Get("Retry-After") != "1" {
		t.Errorf("after a change: %v", second.Header)
	}
	b.Post(b.batch("b", "/cancellation"), nil).Expect(200)
	b.finish(t, chunk, models.RowResult{Index: 1, Outcome: models.OutcomeSucceeded})
	settled := get(second.Header.Get("ETag")).Expect(200)
	if _, ok := settled.Header["Retry-After"]; ok {
		t.Error("a settled batch has a Retry-After")
	}
	a := get(settled.Header.Get("ETag")).Expect(304)
	if _, ok := a.Header["Retry-After"]; ok {
		t.Error("a settled batch has a Retry-After with its 304")
	}
}

func received(t testing.TB, answers <-chan *apitest.Answer, status int) *apitest.Answer {
	t.Helper()
	a, ok := <-answers
	if !ok {
		t.Fatal("no answer")
	}
	if got := a.Expect(status).Header.Get("Preference-Applied"); got != "wait" {
		t.Errorf("Preference-Applied: %q", got)
	}
	return a
}

func TestWaitUntilSettled(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	chunk := b.submit(t, "b", "ada", "bob")
	answers := b.arrived.hold(t, b.With("Prefer", "respond-async, wait=30"), b.batch("b", ""))
	b.finish(t, chunk, models.RowResult{Index: 0, Outcome: models.OutcomeSucceeded}) // the batch is not settled yet
	b.finish(t, chunk, models.RowResult{Index: 1, Outcome: models.OutcomeDeclined})
	if got := dataOf[batchData](received(t, answers, 200)); got.State != "settled" || got.Counts.Succeeded != 1 {
		t.Errorf("got %+v", got)
	}
	begun := time.Now()
	b.With("Prefer", "wait=30").Get(b.batch("b", "")).Expect(200)
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("a settled batch was held for %s", took)
	}
}

func TestWaitUntilChanged(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	chunk := b.submit(t, "b", "ada", "bob")
	etag := b.Get(b.batch("b", "")).Header.Get("ETag")
	answers := b.arrived.hold(t, b.With("Prefer", "wait=30").With("If-None-Match", `"old", `+etag), b.batch("b", ""))
	b.finish(t, chunk, models.RowResult{Index: 1, Release: true, RetryAfter: time.Minute}) // changes no counter
	a := received(t, answers, 200)
	if got := dataOf[batchData](a); got.State != "inProgress" || got.Rows[1].State != "pending" ||
		a.Header.Get("ETag") == etag {
		t.Errorf("got %+v", got)
	}
	// the batch has changed already
	b.With("Prefer", "wait=30").With("If-None-Match", etag).Get(b.batch("b", "")).Expect(200)
}

func TestWaitEndsByItself(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	b.submit(t, "b", "ada")
	etag := b.Get(b.batch("b", "")).Header.Get("ETag")
	held := b.With("Prefer", "wait=1")
	for name, c := range map[string]*apitest.Client{"until settled": held,
		"until changed": held.With("If-None-Match", etag), "any": held.With("If-None-Match", "*")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := 304
			if name == "until settled" {
				status = 200
			}
			begun := time.Now()
			a := c.For(t).Get(b.batch("b", "")).Expect(status)
			if took := time.Since(begun); took < time.Second || a.Header.Get("ETag") != etag ||
				a.Header.Get("Preference-Applied") != "wait" {
				t.Errorf("after %s: %v", took, a.Header)
			}
		})
	}
	for _, prefer := range []string{"wait=0", "wait=x", "respond-async", "wait"} {
		if a := b.With("Prefer", prefer).Get(b.batch("b", "")).Expect(200); a.Header.Get("Preference-Applied") != "" {
			t.Errorf("%s was applied", prefer)
		}
	}
	a := b.With("Prefer", "wait=30").Get(b.batch("none", "")).Refused(404, "batches:batch-not-found batchReference")
	if a.Header.Get("Preference-Applied") != "" {
		t.Error("a wait for nothing was applied")
	}
}

func TestWaitEndsWhenTheBatchIsDeleted(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	b.submit(t, "b", "ada")
	etag := b.Get(b.batch("b", "")).Header.Get("ETag")
	answers := b.arrived.hold(t, b.With("Prefer", "wait=30").With("If-None-Match", etag), b.batch("b", ""))
	b.advance(t, models.BatchRetention)
	if a, ok := <-answers; ok {
		a.Refused(404, "batches:batch-not-found batchReference")
	}
}

func TestWaitEndsWhenTheServerDrains(t *testing.T) {
	t.Parallel()
	var cfg api.Config
	arrived := newArrivals()
	b := &batching{tasks: make(chan []models.TaskID, 1), arrived: arrived}
	b.billing = newBilling(t, func(c *api.Config) {
		c.Notify = func(tasks []models.TaskID) { b.tasks <- tasks }
		cfg = *c
		cfg.Limiter = arrived
	})
	b.submit(t, "b", "ada")
	server := api.New(cfg)
	answers := b.arrived.hold(t, apitest.New(t, server).WithToken("owner").With("Prefer", "wait=30"), b.batch("b", ""))
	begun := time.Now()
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := dataOf[batchData](received(t, answers, 200)); got.State != "inProgress" ||
		time.Since(begun) > 15*time.Second {
		t.Errorf("after %s: %+v", time.Since(begun), got)
	}
}

func TestCancellation(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	b.Post(b.batches(""), bodyOf("untouched", "ada", "bob")).Expect(202)
	<-b.tasks
	golden(t, "batch-cancelled", b.Post(b.batch("untouched", "/cancellation"), nil).Expect(200))
	// the same again
	golden(t, "batch-cancelled", b.Post(b.batch("untouched", "/cancellation"), `{"ignored":1}`).Expect(200))
	golden(t, "batch-not-found", b.Post(b.batch("none", "/cancellation"), nil).Expect(404))

	chunk := b.submit(t, "under way", customersFor(models.ChunkRows+1)...) // the last row is another chunk's
	a := b.Post(b.batch("under way", "/cancellation"), nil).Expect(200)
	got := dataOf[batchData](a)
	if got.State != "inProgress" || got.Counts.InProgress != models.ChunkRows || got.Counts.Failed != 1 ||
		a.Header.Get("Retry-After") != "1" {
		t.Errorf("cancelled under way: %+v, %v", got.Counts, a.Header)
	}
	results := outcomes(slices.Repeat([]models.RowOutcome{models.OutcomeSucceeded}, models.ChunkRows)...)
	results[7] = models.RowResult{Index: 7, Release: true}
	b.finish(t, chunk, results...)
	got = dataOf[batchData](b.Get(b.batch("under way", "")))
	if got.State != "settled" || got.Counts.Succeeded != models.ChunkRows-1 || got.Rows[7].Outcome != "cancelled" ||
		got.Rows[models.ChunkRows].Outcome != "cancelled" {
		t.Errorf("in the end: %+v", got.Counts)
	}
}

func TestBatchesAreKept90Days(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	body := bodyOf("b", "ada")
	first := dataOf[receipt](b.Post(b.batches(""), body).Expect(202))
	b.advance(t, models.BatchRetention-time.Millisecond)
	if again := dataOf[receipt](b.Post(b.batches(""), body).Expect(202)); again != first {
		t.Errorf("within 90 days: %+v, first %+v", again, first)
	}
	b.Post(b.batches(""), bodyOf("b", "bob")).Expect(409)
	b.Get(b.batch("b", "")).Expect(200)
	b.advance(t, time.Millisecond)
	for _, path := range []string{"", "/rows"} {
		b.Get(b.batch("b", path)).Refused(404, "batches:batch-not-found batchReference")
	}
	b.Post(b.batch("b", "/cancellation"), nil).Refused(404, "batches:batch-not-found batchReference")
	b.Post(b.batch("b", "/retry"), `{"batchReference":"c"}`).Refused(404, "batches:batch-not-found batchReference")
	if list := dataOf[batchPage](b.Get(b.batches(""))); len(list.Items) != 0 || list.TotalItems != 0 {
		t.Errorf("listed past retention: %+v", list)
	}
	second := b.Post(b.batches(""), bodyOf("b", "bob")).Expect(202)
	want := receipt{"b", "inProgress", 1, 100, first.SubmittedAt.Add(models.BatchRetention),
		first.SettleBy.Add(models.BatchRetention)}
	if diff := cmp.Diff(want, dataOf[receipt](second)); diff != "" || second.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("the reference used again: %s%v", diff, second.Header)
	}
}
