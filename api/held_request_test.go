package api_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/api/ratelimit"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// arrivals is a limiter that allows every request and signals its arrival.
type arrivals struct{ next chan struct{} }

func newArrivals() *arrivals { return &arrivals{make(chan struct{}, 1)} }

func (a *arrivals) Take(context.Context, models.ClientID, ratelimit.Class) ratelimit.Decision {
	select {
	case a.next <- struct{}{}:
	default: // an earlier arrival is still unread
	}
	return ratelimit.Decision{Allowed: true}
}

// hold starts a GET that the server holds, and returns once it has arrived or failed. The channel
// delivers the answer; it is closed without one on failure.
func (a *arrivals) hold(t testing.TB, client *apitest.Client, path string) <-chan *apitest.Answer {
	t.Helper()
	select {
	case <-a.next: // the arrival of an earlier request
	default:
	}
	answers, ended := make(chan *apitest.Answer, 1), make(chan struct{})
	go func() {
		defer close(answers)
		defer close(ended)
		answer, err := client.Try(context.Background(), http.MethodGet, path, nil)
		if err != nil {
			t.Errorf("the held request: %v", err)
			return
		}
		answers <- answer
	}()
	select {
	case <-a.next:
	case <-ended:
	}
	return answers
}

// An organisation's held requests are bounded. A further one is answered at once, without a wait.
// Another organisation's requests are held all the same, and a request that is answered counts no
// more.
func TestHeldRequestsAreBounded(t *testing.T) {
	t.Parallel()
	const perOrganisation = 8 // with the fewest connections
	arrived, metrics := newArrivals(), prometheus.NewRegistry()
	b := newBilling(t, func(cfg *api.Config) { cfg.Limiter, cfg.MemoryLimit, cfg.Metrics = arrived, 1<<20, metrics })
	b.Post(b.batches(""), bodyOf("b", "ada")).Expect(202)
	id, _ := b.intent(t)
	patient := b.With("Prefer", "wait=30")
	var held []<-chan *apitest.Answer
	for i := range perOrganisation {
		held = append(held, arrived.hold(t, patient, []string{b.batch("b", ""), b.intents("/" + id)}[i%2]))
	}
	awaitGauge(t, metrics, "svc_http_held", perOrganisation) // of the kind requests, the first one
	for _, path := range []string{b.batch("b", ""), b.intents("/" + id)} {
		a := patient.Get(path).Expect(200)
		if applied := a.Header.Get("Preference-Applied"); applied != "" {
			t.Errorf("%s: Preference-Applied %q without a wait", path, applied)
		}
	}
	awaitGauge(t, metrics, "svc_http_held", perOrganisation)
	strange := "/billing/sites/" + b.otherSite.String() + "/batches"
	b.other.Post(strange, bodyOf("b", "ada")).Expect(202)
	other := arrived.hold(t, b.other.With("Prefer", "wait=30"), strange+"/b")
	awaitGauge(t, metrics, "svc_http_held", perOrganisation+1)
	b.other.Post(strange+"/b/cancellation", nil).Expect(200)
	received(t, other, 200)
	b.Post(b.intents("/"+id+"/cancellation"), nil).Expect(200)
	b.Post(b.batch("b", "/cancellation"), nil).Expect(200)
	for _, answers := range held {
		if got := received(t, answers, 200).Header.Get("Preference-Applied"); got != "wait" {
			t.Errorf("Preference-Applied %q", got)
		}
	}
	if got := patient.Get(b.batch("b", "")).Expect(200).Header.Get("Preference-Applied"); got != "wait" {
		t.Errorf("afterwards: Preference-Applied %q", got)
	}
}

// A held request whose poll fails reads the payment intent itself. While that works, it waits on.
func TestHeldRequestOutlivesAFailedPoll(t *testing.T) {
	t.Parallel()
	arrived, metrics := newArrivals(), prometheus.NewRegistry()
	b := newBilling(t, func(cfg *api.Config) { cfg.Limiter, cfg.Metrics = arrived, metrics })
	id, _ := b.intent(t)
	held := arrived.hold(t, b.With("Prefer", "wait=30"), b.intents("/"+id))
	awaitGauge(t, metrics, "svc_http_held", 1)
	awaitGauge(t, metrics, "svc_http_running", 0) // it has read the payment intent, and waits
	locked, err := b.store.DB().BeginTx(t.Context(), nil)
	check(t, err)
	defer func() { _ = locked.Rollback() }()
	_, err = locked.ExecContext(t.Context(), "LOCK TABLE payment_intents IN ACCESS EXCLUSIVE MODE")
	check(t, err)
	modelstest.AwaitLockWait(t, b.store)
	_, err = b.store.DB().ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for waiting := 0; waiting < 2; { // the request's own read, and the next poll
		check(t, b.store.DB().NewRaw(`SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(ctx, &waiting))
	}
	check(t, locked.Commit())
	b.Post(b.intents("/"+id+"/cancellation"), nil).Expect(200)
	if got := dataOf[intentData](received(t, held, 200)); got.State != "final" {
		t.Errorf("answered before the payment intent was final: %+v", got)
	}
}

// A large answer is cached between requests, and is read again when the batch has changed.
func TestLargeBatchesAreNeverStale(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	customers := customersFor(models.MaxBatchRows)
	chunk := b.submit(t, "large", customers...)
	get := func() batchData {
		t.Helper()
		a := b.Get(b.batch("large", "")).Expect(200)
		if len(a.Body) < 64<<10 || a.Header.Get("Content-Length") != fmt.Sprint(len(a.Body)) {
			t.Fatalf("%d bytes, %v", len(a.Body), a.Header)
		}
		if again := b.With("If-None-Match", a.Header.Get("ETag")).Get(b.batch("large", "")); again.Status != 304 {
			t.Errorf("unchanged: %d", again.Status)
		}
		return dataOf[batchData](a)
	}
	for i := range 3 {
		if got := get(); got.Counts.Succeeded != i || len(got.Rows) != models.MaxBatchRows {
			t.Fatalf("after %d rows: %+v", i, got.Counts)
		}
		b.finish(t, chunk, models.RowResult{Index: i, Outcome: models.OutcomeSucceeded})
	}
	etag := b.Get(b.batch("large", "")).Header.Get("ETag")
	answers := make([]<-chan *apitest.Answer, 5)
	for i := range answers {
		answers[i] = b.arrived.hold(t, b.With("Prefer", "wait=30").With("If-None-Match", etag), b.batch("large", ""))
	}
	b.With("Prefer", "wait=1").With("If-None-Match", etag).Get(b.batch("large", "")).Expect(304)
	b.finish(t, chunk, models.RowResult{Index: 3, Outcome: models.OutcomeDeclined})
	for _, a := range answers {
		if got := dataOf[batchData](received(t, a, 200)); got.Rows[3].Outcome != "declined" {
			t.Errorf("a held request got %+v", got.Rows[3])
		}
	}
	table := b.Get(b.batch("large", "/rows")).Expect(200)
	if lines := bytes.Count(table.Body, []byte("\r\n")); lines != models.MaxBatchRows+1 {
		t.Errorf("%d lines", lines)
	}
	b.Post(b.batch("large", "/cancellation"), nil).Expect(200)
	if got := get(); got.Counts.Pending != 0 {
		t.Errorf("after the cancellation: %+v", got.Counts)
	}
}

// A client may ask for many large answers at once within its rate limit.
func TestManyLargeBatchesAtOnce(t *testing.T) {
	t.Parallel()
	const batches = 40
	b := newBilling(t, nil)
	references := make([]string, batches)
	for i := range references {
		references[i] = fmt.Sprint("large-", i)
		b.Post(b.batches(""), bodyOf(references[i], customersFor(400)...)).Expect(202)
	}
	statuses := make(chan int, batches)
	for _, reference := range references {
		go func() {
			a, err := b.Try(context.Background(), http.MethodGet, b.batch(reference, ""), nil)
			if err != nil {
				t.Errorf("%s: %v", reference, err)
				statuses <- 0
				return
			}
			if a.Status == 503 && a.Header.Get("Retry-After") == "" {
				t.Errorf("%s: 503 without Retry-After", reference)
			}
			statuses <- a.Status
		}()
	}
	served := 0
	for range batches {
		switch status := <-statuses; status {
		case 200:
			served++
		case 503: // a slow machine cannot read all of them in time
		default:
			t.Errorf("status %d", status)
		}
	}
	if served == 0 {
		t.Error("none was served")
	}
}
