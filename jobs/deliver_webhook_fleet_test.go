package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"partnerbilling/jobs/webhook"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/queue"
	"partnerbilling/queue/queuetest"
)

// fleet is a dispatcher and a worker that deliver webhooks.
type fleet struct {
	*deliveries
	redis *redis.Client
}

func newFleet(t *testing.T, timeout time.Duration) *fleet {
	d := newDeliveries(t, "")
	f := &fleet{deliveries: d, redis: queuetest.Client(t, queuetest.Start(t).URL)}
	quiet := slog.New(slog.DiscardHandler)
	dispatcher := queue.NewDispatcher(d.store, f.redis, queue.DispatcherConfig{
		Recurring: map[models.TaskKind]time.Duration{models.TaskReleaseWebhooks: time.Second}, Log: quiet,
	})
	d.job.Notify = dispatcher.Notify
	d.job.Sender = webhook.NewSender(webhook.Config{
		Targets: models.WebhookTargets{Sandbox: true, Loopback: true}, Timeout: timeout,
	})
	server := queue.NewServer(f.redis, queue.Jobs{
		models.TaskDeliverWebhook: d.job, models.TaskReleaseWebhooks: ReleaseWebhooks(d.store),
	}, queue.ServerConfig{ShutdownTimeout: 5 * time.Second, Log: quiet})
	d.job.RunClaimed = server.RunClaimed
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- dispatcher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.Shutdown()
		d.job.Sender.Close()
	})
	return f
}

// sites creates n Sites with an endpoint each.
func (f *fleet) sites(n int, url func(int) string) []models.SiteID {
	f.Helper()
	var all []models.SiteID
	for i := range n {
		site, err := f.store.CreateSite(f.Context(), f.site.OrganisationID, fmt.Sprint(i))
		if err != nil {
			f.Fatal(err)
		}
		f.put(site.ID, url(i))
		all = append(all, site.ID)
	}
	return all
}

// await polls until the wanted number of events meets the SQL condition. description completes the
// failure message.
func (f *fleet) await(want int, description, condition string) {
	f.Helper()
	f.awaitCount(want, "events "+description, func() (n int) {
		query := f.store.DB().NewRaw("SELECT count(*) FROM webhook_events WHERE " + condition)
		if err := query.Scan(f.Context(), &n); err != nil {
			f.Fatal(err)
		}
		return n
	})
}

// awaitCount waits until count returns the number that is wanted.
func (f *fleet) awaitCount(want int, description string, count func() int) {
	f.Helper()
	deadline := time.After(3 * time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		n := count()
		if n == want {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			f.Fatalf("%d of %d %s", n, want, description)
		}
	}
}

// tally counts requests by their webhook-id.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[id]++
	return c.n[id]
}

// Redis loses its data while retries wait in it. When a move of the clock makes them due, all are
// delivered.
func TestRetriesSurviveAFlush(t *testing.T) {
	f := newFleet(t, 10*time.Second)
	var seen tally
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen.add(r.Header.Get("webhook-id")) == 1 {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	const sites, each = 75, 4
	for _, site := range f.sites(sites, func(i int) string { return server.URL + fmt.Sprint("/", i) }) {
		for range each {
			f.insert(site)
		}
	}
	f.await(sites*each, "wait for their second attempt", "attempts = 1 AND failures = 1")
	// A retry reaches Redis after the attempt was recorded; that of one event may be under way.
	const most = sites*each - 1
	f.awaitCount(most, "retries wait in Redis", func() int {
		return min(most, queuetest.Delayed(t, f.redis, "webhooks"))
	})
	if err := f.redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	modelstest.AdvanceClock(t, f.store, time.Hour)
	f.await(sites*each, "are delivered", "status = 'delivered'")
	modelstest.Audit(t, f.store)
}

// A move of the service's clock past the time of retries that wait in Redis makes them due at once.
func TestClockMovesPastRetries(t *testing.T) {
	r := newReceiver(t, times(5, status(500))...)
	f := newFleet(t, 10*time.Second)
	f.put(models.SiteID{}, r.URL)
	id, _ := f.insert(f.site.ID)
	for n := range 6 {
		f.await(1, fmt.Sprintf("made attempt %d", n+1), fmt.Sprintf("attempts = %d", n+1))
		event, _ := f.event(id)
		if n < 5 {
			modelstest.SetClock(t, f.store, event.NextAttemptAt)
		}
	}
	event, attempts := f.event(id)
	if event.Status != models.WebhookDelivered || len(attempts) != 6 {
		t.Errorf("event %+v, %d attempts", event, len(attempts))
	}
	for i, a := range attempts {
		if a.StartedAt != noon.Add(schedule[i]) {
			t.Errorf("attempt %d at %s, want %s", i+1, a.StartedAt.Sub(noon), schedule[i])
		}
	}
}

// One endpoint in ten accepts every request and never answers. Meanwhile all events of the others
// are delivered.
func TestHangingEndpointsDoNotDelayOthers(t *testing.T) {
	f := newFleet(t, time.Minute)
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hangs" {
			<-release
		}
	}))
	defer server.Close()
	defer close(release)
	const sites, each = 200, 3
	hangs := func(i int) bool { return i%10 == 0 }
	all := f.sites(sites, func(i int) string {
		if hangs(i) {
			return server.URL + "/hangs"
		}
		return server.URL + fmt.Sprint("/", i)
	})
	for range each {
		for _, site := range all {
			f.insert(site)
		}
	}
	f.await(sites/10*9*each, "are delivered while others hang", "status = 'delivered'")
	f.await(sites/10*each, "hang",
		"status = 'pending' AND EXISTS (SELECT FROM webhook_slots p WHERE p.event_id = webhook_events.id)")
}

// When an endpoint that was down answers again, its parked events are released and delivered: first
// a probe, then more and more.
func TestEndpointRecovers(t *testing.T) {
	var mu sync.Mutex
	down := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if down {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer server.Close()
	f := newFleet(t, 10*time.Second)
	f.put(models.SiteID{}, server.URL)
	const events = 60
	for range events {
		f.insert(f.site.ID)
	}
	f.await(events-models.WebhookOpensAfter, "are parked", `attempts = 0
AND EXISTS (SELECT FROM webhook_slots p WHERE p.event_id = webhook_events.id AND p.until IS NULL)`)
	// The failure that opens the breaker must be recorded before the clock moves.
	f.await(models.WebhookOpensAfter, "have failed", "failures = 1")
	mu.Lock()
	down = false
	mu.Unlock()
	modelstest.AdvanceClock(t, f.store, models.WebhookOpenFor)
	f.await(events, "are delivered", "status = 'delivered'")
	var attempts int
	err := f.store.DB().NewRaw("SELECT max(attempts) FROM webhook_events").Scan(t.Context(), &attempts)
	if err != nil || attempts > 2 {
		t.Errorf("an event took %d attempts, %v", attempts, err)
	}
}

// The worker whose record releases parked events delivers them itself: no dispatcher runs.
func TestReleasedEventsNeedNoDispatch(t *testing.T) {
	r := newReceiver(t)
	d := newDeliveries(t, r.URL)
	const events = 5 * models.WebhookFirstWidth
	for range events {
		d.insert(d.site.ID)
	}
	server := queue.NewServer(queuetest.Client(t, queuetest.Start(t).URL),
		queue.Jobs{models.TaskDeliverWebhook: d.job}, queue.ServerConfig{Log: slog.New(slog.DiscardHandler)})
	d.job.RunClaimed = server.RunClaimed
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown() })
	claimed, err := d.store.ClaimDue(t.Context(),
		models.Dispatch{Queue: models.QueueWebhooks, Limit: events, InFlight: events})
	if err != nil || len(claimed) != events {
		t.Fatalf("claimed %d, %v", len(claimed), err)
	}
	server.RunClaimed(claimed)
	(&fleet{deliveries: d}).await(events, "are delivered", "status = 'delivered'")
}

// A worker that shuts down leaves the events that it releases to others: their tasks are due.
func TestShutdownLeavesReleasedEvents(t *testing.T) {
	ctx, shutDown := context.WithCancel(t.Context())
	during := make(chan func(), 1) // what happens while the receiver has the event
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { (<-during)() }))
	defer server.Close()
	d := newDeliveries(t, server.URL)
	var notified []models.TaskID
	d.job.Notify = func(tasks []models.TaskID) { notified = append(notified, tasks...) }
	d.job.RunClaimed = func(tasks []models.Task) { t.Errorf("%d tasks run during the shutdown", len(tasks)) }
	claim := func(n int) {
		for range n {
			_, task := d.insert(d.site.ID)
			claims := []models.WebhookClaim{{Task: task, Lease: models.NewLeaseToken()}}
			if _, err := d.store.ClaimWebhooks(t.Context(), d.ring, claims, models.WaitForLocked); err != nil {
				t.Error(err)
			}
		}
	}
	claim(models.WebhookFirstWidth - 1)
	during <- func() {
		claim(2) // parked: the endpoint takes no more
		shutDown()
	}
	_, task := d.insert(d.site.ID)
	if err := d.job.Run(ctx, models.Task{ID: task, OrganisationID: d.site.OrganisationID}); err != nil {
		t.Fatal(err)
	}
	if len(notified) != 2 {
		t.Errorf("%d released events are left to others, want 2", len(notified))
	}
}
