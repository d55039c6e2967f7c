package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/api/auth"
	"partnerbilling/api/ratelimit"
	"partnerbilling/deploy/local"
	"partnerbilling/deploy/local/localtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
	"partnerbilling/queue"
	"partnerbilling/queue/queuetest"
)

// wired is an API with the service's own limiter, dispatcher and tokens.
type wired struct {
	*apitest.Client // sends the token of a partner with every scope
	store           *models.Store
	site            string
	fresh           string // a token whose client is not cached yet
	submissions     int
}

func newWired(t *testing.T, store *models.Store, keys *models.Keys, redisURL string) *wired {
	t.Helper()
	w := &wired{store: store}
	owner, err := store.CreateOrganisation(t.Context(), "Harbour Power")
	check(t, err)
	site, err := store.CreateSite(t.Context(), owner.ID, "North Quay")
	check(t, err)
	w.site = site.ID.String()
	token := func() string {
		partner, err := store.CreateClient(t.Context(), owner.ID, "billing run", models.PartnerScopes)
		check(t, err)
		return partsOf(t, store, keys, partner).sign(t)
	}
	w.fresh = token()
	redis, err := queue.ConnectURL(redisURL)
	check(t, err)
	t.Cleanup(func() { _ = redis.Close() })
	ample := ratelimit.Rate{PerSecond: 1e6, Burst: 1e6}
	address, err := queue.ParseRedis(redisURL, nil)
	check(t, err)
	rates := map[ratelimit.Class]ratelimit.Rate{ratelimit.Default: ample, ratelimit.Batches: ample}
	limiter := ratelimit.New(address.ConnectBriefly(ratelimit.Timeout), rates)
	t.Cleanup(func() { _ = limiter.Close() })
	log := slog.New(slog.DiscardHandler)
	dispatcher := queue.NewDispatcher(store, redis, queue.DispatcherConfig{Log: log})
	dispatch(t, dispatcher)
	cfg := auth.Config{URL: publicURL}
	w.Client = apitest.New(t, api.New(api.Config{
		Authenticator: auth.NewAuthenticator(store, keys, cfg), Issuer: auth.NewIssuer(store, keys, cfg),
		Sites: store, Store: store, Keys: keys, Limiter: limiter, Notify: dispatcher.Notify,
		PublicBaseURL: publicURL, Log: log,
		Checks: []api.ReadinessCheck{
			{Name: "postgres", Required: true, Check: store.Ping}, {Name: "redis", Check: queue.PingRedis(redis)},
		},
	})).With("Svc-Api-Version", api.APIVersion).WithToken(token())
	return w
}

// dispatch runs a dispatcher's inline part for the length of the test.
func dispatch(t *testing.T, d *queue.Dispatcher) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.RunInline(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("dispatcher: %v", err)
		}
	})
}

func (w *wired) path(path string) string { return "/billing/sites/" + w.site + path }

// submit submits a new batch.
func (w *wired) submit() *apitest.Answer {
	w.submissions++
	return w.Post(w.path("/batches"), bodyOf(fmt.Sprint("batch ", w.submissions), "ada", "bob"))
}

// slowest returns the duration of the slowest of some calls of every kind.
func (w *wired) slowest() time.Duration {
	var longest time.Duration
	for range 10 {
		for _, call := range []func() *apitest.Answer{
			func() *apitest.Answer { return w.submit().Expect(202) },
			func() *apitest.Answer { return w.Get(w.path("/customers")).Expect(200) },
			func() *apitest.Answer { return w.Get("/readyz").Expect(200) },
		} {
			began := time.Now()
			call()
			longest = max(longest, time.Since(began))
		}
	}
	return longest
}

// An unavailable Redis delays no request by more than 50 ms. Other load on the machine may delay
// single tries, so the best one counts. The test measures time and is not parallel.
func TestNoRequestWaitsForRedis(t *testing.T) {
	const tries, allowed = 20, 50 * time.Millisecond
	store := modelstest.Open(t)
	keys := newKeys(t, store)
	url := queuetest.Redis(t)
	usual := newWired(t, store, keys, url).slowest()
	for name, url := range map[string]string{"hangs": "redis://" + localtest.SilentAddress(t),
		"refuses": "redis://" + localtest.FreeAddress(t)} {
		t.Run(name, func(t *testing.T) {
			got := time.Minute
			for range tries {
				if got = min(got, newWired(t, store, keys, url).slowest()); got <= usual+allowed {
					break
				}
			}
			t.Logf("slowest request: %s, with Redis %s", got, usual)
			if got > usual+allowed {
				t.Errorf("a request took %s, but %s with Redis", got, usual)
			}
		})
	}
}

// While Redis is unavailable, no request is counted: all answers say that the whole burst is left.
func TestRateLimitHeadersWithoutRedis(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	keys := newKeys(t, store)
	for name, url := range map[string]string{"hangs": "redis://" + localtest.SilentAddress(t),
		"refuses": "redis://" + localtest.FreeAddress(t)} {
		w := newWired(t, store, keys, url)
		ordinary := w.Get(w.path("/customers")).Expect(200)
		missing := w.Get(w.path("/batches/none")).Expect(404)
		batch := w.submit().Expect(202)
		for a, want := range map[*apitest.Answer]string{
			ordinary: `"default";r=1000000;t=0`,
			missing:  `"default";r=1000000;t=0`,
			batch:    `"default";r=1000000;t=0, "batches";r=1000000;t=0`,
		} {
			if got := a.Header.Get("RateLimit"); got != want {
				t.Errorf("Redis %s: %d with RateLimit %q, want %q", name, a.Status, got, want)
			}
		}
	}
}

// Without Redis the service is ready and reports the failed check.
func TestReadyWithoutRedis(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	w := newWired(t, store, newKeys(t, store), "redis://"+localtest.FreeAddress(t))
	ready := dataOf[struct {
		Status string
		Checks map[string]string
	}](w.Get("/readyz").Expect(200))
	if ready.Status != "ready" || ready.Checks["postgres"] != "ok" || ready.Checks["redis"] != "unavailable" {
		t.Errorf("%+v", ready)
	}
}

func TestPostgresOutage(t *testing.T) {
	t.Parallel()
	servers, err := local.Temp(t.Context(), local.Options{Ephemeral: true, WithoutRedis: true})
	check(t, err)
	t.Cleanup(func() {
		if err := servers.Stop(context.Background()); err != nil {
			t.Errorf("stop Postgres: %v", err)
		}
	})
	store, err := models.Open(postgres.Config{DSN: servers.DatabaseURL})
	check(t, err)
	t.Cleanup(func() { _ = store.Close() })
	modelstest.Migrate(t, store)
	w := newWired(t, store, newKeys(t, store), queuetest.Redis(t))
	w.submit().Expect(202)
	for _, mode := range []local.StopMode{local.Immediate, local.Fast} {
		check(t, servers.Postgres.Stop(t.Context(), mode))
		done := w.submissions
		for range 3 {
			w.refusedWithoutPostgres(t)
		}
		check(t, servers.Postgres.Start(t.Context()))
		w.submissions = done
		if a := w.recovered(t); a.Header.Get("Idempotent-Replayed") != "" {
			t.Error("a refused submission was kept")
		}
		w.WithToken(w.fresh).Get(w.path("/customers")).Expect(200)
		w.Get("/readyz").Expect(200)
	}
	modelstest.Audit(t, store)
}

// A read-only Postgres counts as unavailable: every request gets 503 until it accepts writes again.
func TestReadOnlyPostgres(t *testing.T) {
	t.Parallel()
	servers, err := local.Temp(t.Context(), local.Options{Ephemeral: true, WithoutRedis: true})
	check(t, err)
	t.Cleanup(func() { check(t, servers.Stop(context.Background())) })
	store, err := models.Open(postgres.Config{DSN: servers.DatabaseURL})
	check(t, err)
	t.Cleanup(func() { _ = store.Close() })
	modelstest.Migrate(t, store)
	w := newWired(t, store, newKeys(t, store), queuetest.Redis(t))
	w.submit().Expect(202)
	admin, err := pgx.Connect(t.Context(), servers.DatabaseURL)
	check(t, err)
	t.Cleanup(func() { check(t, admin.Close(context.Background())) })
	readOnly := func(value string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), "ALTER SYSTEM SET default_transaction_read_only = "+value)
		check(t, err)
		_, err = admin.Exec(t.Context(), "SELECT pg_reload_conf()")
		check(t, err)
		for got := ""; got != value; {
			check(t, admin.QueryRow(t.Context(), "SHOW default_transaction_read_only").Scan(&got))
		}
	}
	readOnly("on")
	w.untilRefused(t) // each server process reloads the setting on its own
	w.refusedWithoutPostgres(t)
	readOnly("off")
	w.recovered(t)
	w.Get("/readyz").Expect(200)
	modelstest.Audit(t, store)
}

// untilRefused submits batches until several in a row are refused.
func (w *wired) untilRefused(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for refused := 0; refused < 5; {
		if refused++; w.submit().Status != http.StatusServiceUnavailable {
			refused = 0
		}
		select {
		case <-ctx.Done():
			t.Fatal("batches are still accepted")
		case <-again.C:
		}
	}
}

// refusedWithoutPostgres checks requests that need Postgres, and requests that do not.
func (w *wired) refusedWithoutPostgres(t *testing.T) {
	t.Helper()
	unknown := w.WithToken(w.fresh)
	for _, a := range []*apitest.Answer{
		w.submit(),
		w.Get(w.path("/customers")),
		w.Get(w.path("/batches/batch%201")),
		w.Post(w.path("/customers/invitations"), `{"customerReference":"ada"}`),
		unknown.Get(w.path("/customers")),
	} {
		a.Refused(http.StatusServiceUnavailable, "requests:unavailable")
		if got := a.Header.Get("Retry-After"); got != "1" {
			t.Errorf("Retry-After %q", got)
		}
	}
	w.Get("/readyz").Refused(http.StatusServiceUnavailable, "requests:unavailable postgres")
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {models.ClientID(uuid.New()).String()},
		"client_secret": {"x"}}
	w.With("Authorization", "").With("Content-Type", "application/x-www-form-urlencoded").
		Post("/oauth2/token", form.Encode()).Expect(503)
	w.Get("/livez").Expect(200)
	w.Post(w.path("/batches"), "{").Refused(400, "requests:malformed-json")
}

// recovered submits batches until one is accepted.
func (w *wired) recovered(t *testing.T) *apitest.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		a := w.submit()
		if a.Status != http.StatusServiceUnavailable {
			return a.Expect(202)
		}
		w.submissions--
		select {
		case <-ctx.Done():
			t.Fatal("Postgres is back, and batches are still refused")
		case <-again.C:
		}
	}
}

// A request that finds the queue for Postgres full is answered with 503 at once.
func TestFullQueueForPostgres(t *testing.T) {
	t.Parallel()
	store, err := models.Open(postgres.Config{DSN: modelstest.DSN(t), MaxConns: 1, MaxQueued: 2})
	check(t, err)
	t.Cleanup(func() { _ = store.Close() })
	w := newWired(t, store, newKeys(t, store), "redis://"+localtest.FreeAddress(t))
	w.Get(w.path("/customers")).Expect(200)
	connection, err := store.DB().Conn(t.Context())
	check(t, err)
	before := store.Stats().WaitCount
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			if a, err := w.Try(t.Context(), "GET", w.path("/customers"), nil); err != nil || a.Status != 200 {
				t.Errorf("a call that waited: %+v, %v", a, err)
			}
		})
	}
	poll, deadline := time.NewTicker(5*time.Millisecond), time.NewTimer(time.Minute)
	defer poll.Stop()
	defer deadline.Stop()
	for store.Stats().WaitCount < before+3 {
		select {
		case <-poll.C:
		case <-deadline.C:
			t.Fatal("the calls never queued for Postgres")
		}
	}
	a := w.Get(w.path("/customers")).Refused(503, "requests:unavailable")
	if got := a.Header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After %q", got)
	}
	check(t, connection.Close())
	waiting.Wait()
	w.Get(w.path("/customers")).Expect(200)
}
