package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/api/ratelimit"
	"partnerbilling/models"
)

// gate is a limiter that blocks every request until it opens. A blocked request holds its slot.
type gate struct {
	inside chan struct{} // receives a value per request
	opened chan struct{} // closed to let requests pass
}

func newGate() *gate { return &gate{make(chan struct{}, 100), make(chan struct{})} }

func (g *gate) Take(context.Context, models.ClientID, ratelimit.Class) ratelimit.Decision {
	g.inside <- struct{}{}
	<-g.opened
	return ratelimit.Decision{Allowed: true}
}

// gauge returns the value of a metric without labels, or the count of a histogram.
func gauge(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	check(t, err)
	for _, family := range families {
		if family.GetName() == name {
			m := family.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// awaitGauge waits until a metric has the value.
func awaitGauge(t *testing.T, registry *prometheus.Registry, name string, want float64) {
	t.Helper()
	poll, deadline := time.NewTicker(time.Millisecond), time.NewTimer(time.Minute)
	defer poll.Stop()
	defer deadline.Stop()
	for gauge(t, registry, name) != want {
		select {
		case <-poll.C:
		case <-deadline.C:
			t.Fatalf("%s never was %v", name, want)
		}
	}
}

// While the only slot is taken, other requests are shed with 503 in the shape of their area.
func TestShedding(t *testing.T) {
	t.Parallel()
	busy, metrics := newGate(), prometheus.NewRegistry()
	b := newBilling(t, func(cfg *api.Config) {
		cfg.Limiter, cfg.Metrics = busy, metrics
		cfg.Concurrency, cfg.QueueWait = 1, time.Millisecond
	})
	var first sync.WaitGroup
	first.Go(func() {
		if a, err := b.Try(context.Background(), http.MethodGet, b.customers(""), nil); err != nil ||
			a.Status != http.StatusOK {
			t.Errorf("the first: %+v, %v", a, err)
		}
	})
	<-busy.inside
	const message = "The service cannot answer now. Try again after the time that Retry-After gives, in seconds."
	for _, path := range []string{b.customers(""), "/webhooks/events", "/webhooks/listen"} {
		a := b.Get(path).Expect(503)
		want := `{"errors":[{"code":"urn:svc:platform:billing:error:requests:unavailable","displayMessage":"` +
			message + `"}],"traceId":"` + a.TraceID() + `"}`
		if got := a.Header.Get("Retry-After"); got != "1" || string(a.Body) != want {
			t.Errorf("%s: Retry-After %q, %s", path, got, a.Body)
		}
	}
	a := b.WithToken("nobody's").Post(b.intents(""), `{"amount":1}`).Expect(503)
	before, _, _ := strings.Cut(string(a.Body), `"timestamp":`)
	want := `{"errors":[{"message":"` + message + `"}],"traceId":"` + a.TraceID() + `",`
	if got := a.Header.Get("Retry-After"); got != "1" || before != want {
		t.Errorf("Retry-After %q, %s", got, a.Body)
	}
	a = b.With("Content-Type", "application/x-www-form-urlencoded").
		Post("/oauth2/token", "grant_type=client_credentials").Expect(503)
	if got := a.Header.Get("Retry-After"); got != "1" ||
		string(a.Body) != `{"error":"temporarily_unavailable","error_description":"try again later"}` {
		t.Errorf("Retry-After %q, %s", got, a.Body)
	}
	if a = b.Get("/signup/x").Expect(503); !strings.Contains(string(a.Body), "<html") ||
		a.Header.Get("Retry-After") != "1" {
		t.Errorf("%v, %s", a.Header, a.Body)
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		b.Get(path).Expect(200)
	}
	b.Get("/nothing").Expect(404)
	if got := gauge(t, metrics, "svc_http_busy_total"); got != 6 {
		t.Errorf("%v requests were refused", got)
	}
	close(busy.opened)
	first.Wait()
	b.Get(b.customers("")).Expect(200)
	awaitGauge(t, metrics, "svc_http_running", 0)
	if got := gauge(t, metrics, "svc_http_queue_duration_seconds"); got != 2 {
		t.Errorf("%v requests have run", got)
	}
}

// Queued requests acquire the slot in the order of arrival.
func TestQueueIsServedInOrder(t *testing.T) {
	t.Parallel()
	busy := newGate()
	g := newTestServer(t, func(cfg *api.Config) {
		cfg.Limiter, cfg.Concurrency, cfg.QueueWait = busy, 1, time.Minute
	})
	var group sync.WaitGroup
	for i := range 5 {
		group.Go(func() {
			a, err := g.Try(context.Background(), http.MethodGet, site(fmt.Sprint("/batches/", i)), nil)
			if err != nil || a.Status != http.StatusOK {
				t.Errorf("%d: %+v, %v", i, a, err)
			}
		})
		if i == 0 {
			<-busy.inside
		}
		awaitGauge(t, g.metrics, "svc_http_waiting", float64(i))
	}
	close(busy.opened)
	group.Wait()
	for i := range 5 {
		if got := <-g.kept; got != fmt.Sprint(i) {
			t.Errorf("slot %d went to request %s", i, got)
		}
	}
}

// A request that is held by Prefer: wait releases its slot, so that the request it waits for can
// run.
func TestHeldRequestsHoldNoSlot(t *testing.T) {
	t.Parallel()
	arrived := newArrivals()
	b := newBilling(t, func(cfg *api.Config) {
		cfg.Limiter, cfg.Concurrency, cfg.QueueWait = arrived, 1, time.Minute
	})
	patient := b.With("Prefer", "wait=30")
	id, _ := b.intent(t)
	b.Post(b.batches(""), bodyOf("b", "ada")).Expect(202)
	var held []<-chan *apitest.Answer
	for range 3 {
		held = append(held, arrived.hold(t, patient, b.intents("/"+id)), arrived.hold(t, patient, b.batch("b", "")))
	}
	b.Post(b.intents("/"+id+"/cancellation"), nil).Expect(200)
	b.Post(b.batch("b", "/cancellation"), nil).Expect(200)
	for _, answers := range held {
		a, ok := <-answers
		if !ok {
			t.Fatal("no answer")
		}
		if state := dataOf[map[string]any](a.Expect(200))["state"]; state != "final" && state != "settled" {
			t.Errorf("answered %s", a.Body)
		}
	}
}

// A held request that is shed when it resumes is answered with 503.
func TestHeldRequestIsShed(t *testing.T) {
	t.Parallel()
	busy, metrics := newGate(), prometheus.NewRegistry()
	first := newArrivals()
	limit := &swappableLimiter{current: first}
	b := newBilling(t, func(cfg *api.Config) {
		cfg.Limiter, cfg.Metrics, cfg.Concurrency, cfg.QueueWait = limit, metrics, 1, 10*time.Millisecond
	})
	id, _ := b.intent(t)
	held := first.hold(t, b.With("Prefer", "wait=1"), b.intents("/"+id))
	limit.swap(busy)
	var other sync.WaitGroup
	other.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for { // until this request, not the held one, has the slot
			if a, err := b.Try(ctx, http.MethodGet, b.intents("/"+id), nil); err != nil ||
				a.Status != http.StatusServiceUnavailable {
				return
			}
		}
	})
	<-busy.inside
	if a := (<-held).Expect(503); a.Header.Get("Retry-After") != "1" {
		t.Errorf("%v", a.Header)
	}
	close(busy.opened)
	other.Wait()
}

// swappableLimiter is a limiter that a test replaces while the server runs.
type swappableLimiter struct {
	mu      sync.Mutex
	current api.Limiter
}

func (s *swappableLimiter) swap(l api.Limiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = l
}

func (s *swappableLimiter) Take(ctx context.Context, client models.ClientID, class ratelimit.Class) ratelimit.Decision {
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	return current.Take(ctx, client, class)
}

// A listener holds no slot between its queries.
func TestListenersHoldNoSlot(t *testing.T) {
	h := newHooks(t, func(cfg *api.Config) { cfg.Concurrency, cfg.QueueWait = 1, time.Minute })
	s := h.listen()
	h.listen()
	h.Get("/webhooks/events").Expect(200)
	id, _ := h.insert()
	s.event(id, models.EventTransactionStatus)
	h.Get("/webhooks/events").Expect(200)
}

// A large body that arrives slowly holds no slot meanwhile.
func TestSlowBodiesHoldNoSlot(t *testing.T) {
	t.Parallel()
	arrived := newArrivals()
	g := newTestServer(t, func(cfg *api.Config) {
		cfg.Limiter, cfg.Concurrency, cfg.QueueWait = arrived, 1, time.Minute
	})
	connection, err := net.Dial("tcp", strings.TrimPrefix(g.BaseURL, "http://"))
	check(t, err)
	defer connection.Close()
	body := `{"batchReference":"b","amount":1` + strings.Repeat(" ", 20_000) + `}`
	_, err = fmt.Fprintf(connection,
		"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer full\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		site("/batches"), len(body), body[:10_000])
	check(t, err)
	<-arrived.next
	for range 3 {
		g.Get(site("/batches/b")).Expect(200)
	}
	_, err = io.WriteString(connection, body[10_000:])
	check(t, err)
	answer, err := io.ReadAll(connection)
	if err != nil && !errors.Is(err, io.EOF) || !strings.HasPrefix(string(answer), "HTTP/1.1 202 ") {
		t.Errorf("%v, %s", err, answer)
	}
}
