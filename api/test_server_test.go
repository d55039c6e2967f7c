package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/api/auth"
	"partnerbilling/api/docs"
	"partnerbilling/api/ratelimit"
	"partnerbilling/api/strictjson"
	"partnerbilling/models"
	"partnerbilling/models/logs"
)

// testServer has its own route table, with one route of each kind.

var (
	organisation = models.OrganisationID(uuid.MustParse("01932c07-0000-7000-8000-000000000001"))
	ownSite      = models.SiteID(uuid.MustParse("01932c07-0000-7000-8000-000000000002"))
	otherSite    = models.SiteID(uuid.MustParse("01932c07-0000-7000-8000-000000000003"))
	client       = models.ClientID(uuid.MustParse("01932c07-0000-7000-8000-000000000004"))
)

// callers maps tokens to callers.
type callers map[string]api.Principal

func (c callers) Authenticate(_ context.Context, authorization string, _ netip.Addr) (api.Principal, error) {
	token, ok := strings.CutPrefix(authorization, "Bearer ")
	if !ok {
		return api.Principal{}, auth.ErrNoCredentials
	}
	if token == "unavailable" {
		return api.Principal{}, fmt.Errorf("look up the client: %w", models.ErrUnavailable)
	}
	p, ok := c[token]
	if !ok {
		return api.Principal{}, fmt.Errorf("%w: no such token", auth.ErrInvalidToken)
	}
	return p, nil
}

func (callers) Site(_ context.Context, owner models.OrganisationID, id models.SiteID) (models.Site, error) {
	if owner != organisation || id != ownSite {
		return models.Site{}, fmt.Errorf("site: %w", models.ErrNotFound)
	}
	return models.Site{ID: id, OrganisationID: owner, Currency: "AUD"}, nil
}

var tokens = callers{
	"full":   {ClientID: client, OrganisationID: organisation, Scopes: models.PartnerScopes},
	"narrow": {ClientID: client, OrganisationID: organisation, Scopes: []models.Scope{models.ScopeWebhooksRead}},
	"app":    {ClientID: client, Scopes: models.CustomerAppScopes},
	// an impossible token: partner scopes without an organisation
	"mixed": {ClientID: client, Scopes: models.PartnerScopes},
}

// limiter is a limiter whose decision the test sets.
type limiter struct {
	mu       sync.Mutex
	decision ratelimit.Decision
	classes  []ratelimit.Class
}

func (l *limiter) Take(_ context.Context, _ models.ClientID, class ratelimit.Class) ratelimit.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.classes = append(l.classes, class)
	return l.decision
}

func (l *limiter) set(d ratelimit.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decision = d
}

// logBuffer is a log that a test can read while the server writes it.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// testServer is a server with the test's route table, and a client for it.
type testServer struct {
	*apitest.Client
	server  *api.Server
	limiter *limiter
	log     *logBuffer
	metrics *prometheus.Registry
	waiting chan struct{} // receives a value when a request enters and when it leaves /wait
	kept    chan string   // path parameters, kept after their request
}

var testServerDescription = sync.OnceValues(func() (*apitest.Description, error) {
	source, err := os.ReadFile("docs/openapi.yaml")
	if err != nil {
		return nil, err
	}
	paths, err := os.ReadFile("testdata/test_server.yaml")
	if err != nil {
		return nil, err
	}
	before, rest, _ := strings.Cut(string(source), "\npaths:\n")
	_, components, _ := strings.Cut(rest, "\ncomponents:\n")
	source = []byte(before + "\n" + string(paths) + "\ncomponents:\n" + components)
	document, err := docs.JSON(source, api.DocumentedErrors())
	if err != nil {
		return nil, err
	}
	return apitest.ParseDescription(document)
})

func newTestServer(t testing.TB, change func(*api.Config)) *testServer {
	t.Helper()
	g := &testServer{
		limiter: &limiter{decision: ratelimit.Decision{Allowed: true}},
		log:     &logBuffer{},
		metrics: prometheus.NewRegistry(),
		waiting: make(chan struct{}, 64),
		kept:    make(chan string, 1024),
	}
	cfg := api.Config{
		Authenticator: tokens, Sites: tokens, Limiter: g.limiter, Metrics: g.metrics,
		Log: slog.New(logs.NewHandler(slog.NewJSONHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug}),
			time.Now)),
	}
	if change != nil {
		change(&cfg)
	}
	g.server = api.NewWithRoutes(cfg, g.routes())
	description, err := testServerDescription()
	if err != nil {
		t.Fatal(err)
	}
	g.Client = apitest.NewWith(t, g.server, description).WithToken("full")
	return g
}

func site(path string) string     { return "/billing/sites/" + ownSite.String() + path }
func checkout(path string) string { return "/checkout/" + ownSite.String() + path }

func (g *testServer) routes() []api.Route {
	reference := api.Param{Name: "batchReference", Check: models.ValidateReference, NotFound: api.BatchNotFound}
	return []api.Route{
		{
			Method: "GET", Path: "/billing/sites/{siteId}/customers", Area: "customers", Audience: api.Partner,
			Scope: models.ScopeCustomersRead, Version: api.VersionRequired, Query: []string{"limit", "state"},
			Paged: true, Handler: g.list,
		},
		{
			Method: "POST", Path: "/billing/sites/{siteId}/batches", Area: "batches", Audience: api.Partner,
			Scope: models.ScopeBatchesWrite, Version: api.VersionOptional, Rate: ratelimit.Batches,
			Body: api.JSONBody, Bounds: api.BatchBody, Handler: g.submit,
		},
		{
			Method: "GET", Path: "/billing/sites/{siteId}/batches/{batchReference}", Area: "batches",
			Audience: api.Partner,
			Scope:    models.ScopeBatchesRead, Version: api.VersionOptional, Param: reference, Handler: g.get,
		},
		{
			Method: "GET", Path: "/billing/sites/{siteId}/batches/{batchReference}/rows", Area: "batches",
			Audience: api.Partner,
			Scope:    models.ScopeBatchesRead, Version: api.VersionOptional, Param: reference, Handler: g.get,
		},
		{
			Method: "POST", Path: "/checkout/{siteId}/payment-intent", Audience: api.Partner,
			Scope: models.ScopePaymentIntentsWrite, Body: api.JSONBody, Idempotent: true, Handler: g.createIntent,
		},
		{
			Method: "POST", Path: "/customer-app/links/{linkId}/revocation", Area: "customers",
			Audience: api.CustomerApp,
			Scope:    models.ScopeSignupsWrite, Body: api.OptionalJSON,
			Param: api.Param{Name: "linkId", NotFound: api.CustomerLinkNotFound}, Handler: g.revoke,
		},
		{Method: "POST", Path: "/form", Audience: api.Public, Body: api.FormBody, Handler: g.form},
		{Method: "GET", Path: "/fail/{how}", Audience: api.Public,
			Param: api.Param{Name: "how", NotFound: api.NotFound}, Timeout: time.Second, Handler: g.fail},
		{Method: "GET", Path: "/wait", Audience: api.Public, Query: []string{"deaf"}, Timeout: time.Minute,
			Handler: g.wait},
	}
}

func (g *testServer) list(_ context.Context, r *api.Request) error {
	limit, _, err := r.QueryInt("limit", 1, 100)
	if err != nil {
		return err
	}
	state, _ := r.Query("state")
	cursor, _ := r.Query("cursor")
	return r.JSON(http.StatusOK, map[string]any{"limit": limit, "state": state, "cursor": cursor, "site": r.Site.ID})
}

func (g *testServer) submit(_ context.Context, r *api.Request) error {
	body := strictjson.NewObject(r.Body, "batchReference", "amount")
	reference := body.RequiredString("batchReference", models.ValidateReference)
	amount := body.RequiredInt("amount", strictjson.AtLeast(1))
	if err := r.BodyError(body); err != nil {
		return err
	}
	r.Location("billing", "sites", r.Site.ID.String(), "batches", reference)
	if amount == 13 {
		return api.Refuse(api.BatchReferenceConflict, "batchReference")
	}
	return r.JSON(http.StatusAccepted, map[string]any{"batchReference": reference, "amount": amount})
}

func (g *testServer) get(_ context.Context, r *api.Request) error {
	select {
	case g.kept <- r.Param():
	default:
	}
	return r.JSON(http.StatusOK, map[string]any{"batchReference": r.Param(), "wait": r.PreferWait().Milliseconds()})
}

func (g *testServer) createIntent(_ context.Context, r *api.Request) error {
	body := strictjson.NewObject(r.Body, "amount", "lineItems")
	body.RequiredInt("amount", func(n int64) error {
		if n <= 0 {
			return errors.New("must be greater than 0")
		}
		return nil
	})
	for _, item := range body.OptionalObjects("lineItems", 0, 100, "quantity") {
		item.RequiredInt("quantity", strictjson.AtLeast(1))
	}
	if err := r.BodyError(body); err != nil {
		return err
	}
	return r.JSON(http.StatusCreated, map[string]any{"key": r.IdempotencyKey})
}

func (g *testServer) revoke(_ context.Context, r *api.Request) error {
	return r.JSON(http.StatusOK, map[string]any{"link": r.Param(), "body": r.Body.Kind() != strictjson.Absent})
}

func (g *testServer) form(_ context.Context, r *api.Request) error {
	return r.JSON(http.StatusOK, map[string]any{"form": string(r.Form)})
}

func (g *testServer) fail(ctx context.Context, r *api.Request) error {
	r.SetHeader("ETag", `"x"`)
	switch r.Param() {
	case "panic":
		panic("secret of the panic")
	case "error":
		return errors.New("secret: relation does not exist")
	case "unavailable":
		return fmt.Errorf("secret: %w", models.ErrUnavailable)
	case "slow":
		<-ctx.Done()
		return fmt.Errorf("secret: %w", ctx.Err())
	case "field":
		return fmt.Errorf("secret: %w", &models.FieldError{Field: "expiresAt", Message: "must be in the future"})
	case "reused":
		return models.ErrIdempotencyKeyReused
	case "inflight":
		return models.ErrIdempotencyKeyInFlight
	case "unencodable":
		return r.JSON(http.StatusOK, func() {})
	default:
		return r.JSON(http.StatusOK, map[string]any{"text": "<&>\u2028é"})
	}
}

func (g *testServer) wait(ctx context.Context, r *api.Request) error {
	if _, deaf := r.Query("deaf"); deaf {
		g.waiting <- struct{}{}
		<-ctx.Done()
		g.waiting <- struct{}{}
		return ctx.Err()
	}
	waiting, stop := r.UntilDisconnect(ctx)
	defer stop()
	g.waiting <- struct{}{}
	<-waiting.Done()
	g.waiting <- struct{}{}
	return r.JSON(http.StatusOK, map[string]any{"ended": ctx.Err() == nil})
}
