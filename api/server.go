// Package api is the HTTP side of the service. One route table says what each operation demands; the checks before a
// handler follow from it, in one order; one catalogue holds every error. A noun's handlers are in the file of its name.
package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"partnerbilling/api/auth"
	"partnerbilling/api/web"
	"partnerbilling/api/web/console"
	"partnerbilling/models"
)

// Config is what the API is made of. Authenticator, Sites, Store, Keys and PublicBaseURL must be there.
type Config struct {
	Authenticator       Authenticator
	Sites               Sites
	Limiter             Limiter      // nil: no limits
	Issuer              *auth.Issuer // our own authorisation server; nil: there is none
	Checks              []ReadinessCheck
	SeparateOpsListener bool // /livez, /readyz and /metrics are on a listener of their own; see OpsHandler
	Mounts              []Mount

	Store         *models.Store // the state of the service
	Keys          *models.Keys  // of sign-up and pagination links
	PublicBaseURL string        // of the service as partners and customers reach it; no slash at the end
	Sandbox       *Sandbox      // nil: production
	AppLink       web.AppLink   // where hosted pages hand over to the customer app; zero: they only explain

	// Notify is told of tasks right after their transaction's commit, so that they start at once. It must not wait. Nil:
	// they start when a worker looks.
	Notify func([]models.TaskID)
	// Debits dispatches the tasks of new batches. Nil: Notify is told of them.
	Debits DebitDispatch

	Webhooks WebhookDeliverer // makes the attempts of test events; nil: they are answered with 503

	Now            func() time.Time     // wall time, of timestamps in errors; default time.Now
	Log            *slog.Logger         // default slog.Default(); see LogHandler
	TracerProvider trace.TracerProvider // default none; one with the IDGenerator SpanIDs has our trace ids
	Metrics        *prometheus.Registry // default a fresh one

	Concurrency int           // requests that run at once; 0: no bound
	QueueWait   time.Duration // for which others may wait until they run; default 500 ms

	RequestTimeout  time.Duration // for an answer; default 10 s
	ReadTimeout     time.Duration // for the whole of a request to arrive; default 15 s
	IdleTimeout     time.Duration // between two requests of a connection; default 75 s
	ShutdownTimeout time.Duration // for open requests once Run is told to end; default 20 s
	RecheckInterval time.Duration // for which the checks of a request count that is held or streams; default 14 s
}

// Mount is a handler that answers everything at and below a path by itself, such as the operator's pages.
type Mount struct {
	Path    string
	Handler fiber.Handler
	// MaxBody is the largest body that reaches the handler, in bytes. Nil: 64 KiB.
	MaxBody func(path string) int
	// Page mounts answer people: errors before the handler are pages too.
	Page bool
}

const (
	defaultRequestTimeout = 10 * time.Second

	maxHeaderBytes = 16 << 10
	maxConnections = 64 << 10
	writeTimeout   = 30 * time.Second
)

// Server answers HTTP requests.
type Server struct {
	now           func() time.Time
	log           *slog.Logger
	tracer        trace.Tracer
	metrics       *metrics
	authenticator Authenticator
	sites         *siteCache
	limiter       Limiter
	admission     *admission
	routes        []Route
	chain         []check
	methods       []string // that the router knows
	router        fasthttp.RequestHandler
	secure        bool // the public base URL is https
	http          *fasthttp.Server

	requests *console.RequestLog // nil: none is kept

	shutdownTimeout time.Duration
	recheckInterval time.Duration
	lifetime        context.Context // of every request
	endRequests     context.CancelFunc
	draining        context.Context // ends when shutdown begins
	beginDraining   context.CancelFunc
	active          active
}

// New makes the API from its parts.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	return newServer(cfg, routes(cfg))
}

func newServer(cfg Config, table []Route) *Server {
	s := &Server{
		now:             cfg.Now,
		log:             cfg.Log,
		tracer:          cfg.TracerProvider.Tracer("partnerbilling/api"),
		metrics:         newMetrics(cfg.Metrics),
		authenticator:   cfg.Authenticator,
		sites:           newSiteCache(cfg.Sites),
		limiter:         cfg.Limiter,
		admission:       newAdmission(cfg.Concurrency, cfg.QueueWait, cfg.Metrics),
		routes:          withDefaults(table, cfg),
		methods:         fiber.DefaultMethods,
		secure:          strings.HasPrefix(cfg.PublicBaseURL, "https://"),
		shutdownTimeout: cfg.ShutdownTimeout,
		recheckInterval: cfg.RecheckInterval,
	}
	if cfg.Sandbox != nil {
		s.requests = console.NewRequestLog()
	}
	RegisterDependencies(cfg.Metrics, cfg.Checks)
	s.lifetime, s.endRequests = context.WithCancel(context.Background())
	s.draining, s.beginDraining = context.WithCancel(context.Background())
	s.chain = s.checks()
	s.router = s.newRouter(slices.Concat(cfg.Mounts, s.consoleMounts(cfg)))
	s.http = &fasthttp.Server{
		Handler:                      s.serve,
		ErrorHandler:                 s.refuseUnreadable,
		Logger:                       serverLogger{s.log},
		SecureErrorLogMessage:        true,
		NoDefaultServerHeader:        true,
		StreamRequestBody:            true, // bodies are read after authentication, up to the route's limit
		DisablePreParseMultipartForm: true,
		MaxRequestBodySize:           maxBatchBytes,
		ReadBufferSize:               maxHeaderBytes,
		Concurrency:                  maxConnections,
		ReadTimeout:                  cfg.ReadTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  cfg.IdleTimeout,
		CloseOnShutdown:              true,
	}
	return s
}

func (cfg Config) withDefaults() Config {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = noop.NewTracerProvider()
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	cfg.QueueWait = orDefault(cfg.QueueWait, 500*time.Millisecond)
	cfg.RequestTimeout = orDefault(cfg.RequestTimeout, defaultRequestTimeout)
	cfg.ReadTimeout = orDefault(cfg.ReadTimeout, 15*time.Second)
	cfg.IdleTimeout = orDefault(cfg.IdleTimeout, 75*time.Second)
	cfg.ShutdownTimeout = orDefault(cfg.ShutdownTimeout, 20*time.Second)
	cfg.RecheckInterval = orDefault(cfg.RecheckInterval, defaultRecheckInterval)
	return cfg
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// withDefaults completes the rows of a route table.
func withDefaults(table []Route, cfg Config) []Route {
	table = slices.Clone(table)
	for i := range table {
		r := &table[i]
		r.Timeout = orDefault(r.Timeout, cfg.RequestTimeout)
		if r.Bounds == (BodyBounds{}) {
			r.Bounds = ordinaryBody
		}
		if r.Rate == "" {
			r.Rate = RateDefault
		}
	}
	return table
}

// Routes is the route table.
func (s *Server) Routes() []Route { return slices.Clone(s.routes) }

// newRouter registers the table with Fiber, which only finds the route; everything else is ours.
func (s *Server) newRouter(mounts []Mount) fasthttp.RequestHandler {
	app := fiber.New(fiber.Config{
		CaseSensitive:         true,
		StrictRouting:         true,
		DisableStartupMessage: true,
		ErrorHandler:          s.refuseUnrouted,
	})
	for i := range s.routes {
		route := &s.routes[i]
		if route.Method == fiber.MethodGet {
			app.Add(fiber.MethodHead, fiberPath(route.Path), s.enter(route))
		}
		app.Add(route.Method, fiberPath(route.Path), s.enter(route))
	}
	for _, m := range mounts {
		app.All(m.Path, s.enterMount(m))
		app.All(m.Path+"/*", s.enterMount(m))
	}
	return app.Handler()
}

// fiberPath writes {name} as :name.
func fiberPath(path string) string { return strings.NewReplacer("{", ":", "}", "").Replace(path) }

func hasParam(path, name string) bool { return strings.Contains(path, "{"+name+"}") }

// exchange is a request with its context, on its way through Fiber.
type exchange struct {
	ctx     context.Context
	request *Request
}

type exchangeKey struct{}

func exchangeOf(c *fiber.Ctx) exchange {
	x, _ := c.Context().UserValue(exchangeKey{}).(exchange)
	x.request.fiber = c
	return x
}

// serve is where every request that could be read comes in.
func (s *Server) serve(fast *fasthttp.RequestCtx) {
	s.active.begin()
	defer s.active.end()
	started := time.Now()
	r := &Request{
		server: s, began: started, fast: fast, trace: models.NewTraceID(), path: string(fast.URI().PathOriginal()), draining: s.draining,
	}
	s.prepare(r)
	method := string(fast.Method())
	ctx := models.WithTraceID(s.lifetime, r.trace)
	ctx, span := s.tracer.Start(withRemoteSpan(ctx, &fast.Request.Header), method, trace.WithSpanKind(trace.SpanKindServer))
	defer func() {
		s.markUnreadBody(r)
		s.record(ctx, span, r, method, time.Since(started))
	}()
	defer s.recover(ctx, r)
	if !hasPlainHeaderNames(&fast.Request.Header) {
		s.fail(ctx, r, unreadable(MalformedRequest, errHeaderName))
		return
	}
	if !slices.Contains(s.methods, method) {
		fast.Request.Header.SetMethod(fiber.MethodTrace) // which no route takes: 404 or 405 as for any other
	}
	if target := fast.Request.Header.RequestURI(); bytes.HasPrefix(target, []byte("//")) {
		path, _, _ := bytes.Cut(target, []byte("?"))
		r.path = string(path) // fasthttp takes what follows for a host, and the rest for the path
		s.fail(ctx, r, Refuse(NotFound, ""))
		return
	}
	fast.SetUserValue(exchangeKey{}, exchange{ctx, r})
	s.router(fast)
}

// strictTransport is what browsers are told of a service that is reached by https: for a year, nothing else.
const strictTransport = "max-age=31536000"

// prepare sets the headers that every answer to a path has.
func (s *Server) prepare(r *Request) {
	r.SetHeader("X-Content-Type-Options", "nosniff")
	if s.secure {
		r.SetHeader("Strict-Transport-Security", strictTransport)
	}
	if inTree(r.path, "/billing") {
		r.SetHeader(headerVersion, APIVersion)
	}
}

var errHeaderName = errors.New("api: white space in the name of a header")

// hasPlainHeaderNames reports whether no header's name has white space in it. A proxy may read such a name as another one.
func hasPlainHeaderNames(h *fasthttp.RequestHeader) bool {
	for name := range h.All() {
		if bytes.ContainsAny(name, " \t") {
			return false
		}
	}
	return true
}

// enter runs a route's checks and handler.
func (s *Server) enter(route *Route) fiber.Handler {
	return func(c *fiber.Ctx) error {
		x := exchangeOf(c)
		x.request.route = route
		ctx, cancel := context.WithTimeout(x.ctx, route.Timeout)
		defer cancel()
		defer x.request.slot.release()
		if err := s.run(ctx, x.request); err != nil {
			s.fail(ctx, x.request, err)
		}
		return nil
	}
}

func (s *Server) enterMount(m Mount) fiber.Handler {
	route := &Route{Path: m.Path, Page: m.Page}
	return func(c *fiber.Ctx) error {
		x := exchangeOf(c)
		x.request.route = route
		maxBody := ordinaryBody.Bytes
		if m.MaxBody != nil {
			maxBody = m.MaxBody(x.request.path)
		}
		body, err := x.request.readAll(x.ctx, maxBody)
		if err == nil {
			c.Request().SetBody(body)
			err = m.Handler(c)
		}
		if err != nil {
			s.fail(x.ctx, x.request, err)
		}
		return nil
	}
}

// refuseUnrouted answers what Fiber found no route for. The Allow header is there already.
func (s *Server) refuseUnrouted(c *fiber.Ctx, err error) error {
	x := exchangeOf(c)
	var routing *fiber.Error
	switch {
	case errors.As(err, &routing) && routing.Code == fiber.StatusMethodNotAllowed:
		err = Refuse(MethodNotAllowed, "")
	case errors.As(err, &routing) && routing.Code == fiber.StatusNotFound:
		err = Refuse(NotFound, "")
	}
	s.fail(x.ctx, x.request, err)
	return nil
}

// refuseUnreadable answers what is not even HTTP, or too large or slow to be read.
func (s *Server) refuseUnreadable(fast *fasthttp.RequestCtx, err error) {
	r := &Request{fast: fast, trace: models.NewTraceID()}
	if c, ok := fast.Conn().(*conn); ok {
		r.path = c.target() // fasthttp has forgotten what it read
	}
	ctx := models.WithTraceID(s.lifetime, r.trace)
	s.log.InfoContext(ctx, "request could not be read", "err", err)
	fast.Response.Reset()
	s.prepare(r)
	s.fail(ctx, r, receiveError(err))
	s.metrics.observe("none", "other", fast.Response.StatusCode(), 0)
}

// recover turns a panic into the answer of an unknown error. Nothing of it is shown.
func (s *Server) recover(ctx context.Context, r *Request) {
	if p := recover(); p != nil {
		s.log.ErrorContext(ctx, "panic in a request", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		s.fail(ctx, r, fmt.Errorf("api: panic: %v", p))
	}
}

// markUnreadBody decides how to go on after a body that nobody read. What is small is skipped by fasthttp.
func (s *Server) markUnreadBody(r *Request) {
	if c, ok := r.fast.Conn().(*conn); ok {
		c.unreadBody.Store(r.hasBody() && !r.bodyRead)
	}
}

// record writes the log line, the metrics and the end of the span.
func (s *Server) record(ctx context.Context, span trace.Span, r *Request, method string, took time.Duration) {
	path, status := "none", r.fast.Response.StatusCode()
	if r.route != nil {
		path = r.route.Path
	}
	if !slices.Contains(s.methods, method) {
		method = "other"
	}
	s.metrics.observe(path, method, status, took)
	s.logRequest(r, method, path, took)
	attrs := [...]slog.Attr{
		slog.String("method", method), slog.String("route", path), slog.Int("status", status),
		slog.Float64("ms", float64(took.Microseconds())/1000), {},
	}
	if !r.Principal.ClientID.IsZero() {
		attrs[4] = slog.String("clientId", r.Principal.ClientID.String())
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "request", attrs[:]...) // which leaves out an empty one
	span.SetName(method + " " + path)
	span.SetAttributes(attribute.String("http.request.method", method), attribute.String("http.route", path),
		attribute.Int("http.response.status_code", status), attribute.String("svc.trace_id", string(r.trace)))
	if status >= fiber.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// Serve answers requests on the listener until Shutdown.
func (s *Server) Serve(ln net.Listener) error {
	stop := context.AfterFunc(s.draining, func() { _ = ln.Close() })
	defer stop()
	if err := s.http.Serve(listener{ln}); err != nil && s.draining.Err() == nil {
		return fmt.Errorf("api: serve: %w", err)
	}
	return nil
}

// Run serves until ctx ends, and then gives open requests Config.ShutdownTimeout to finish.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.shutdownTimeout)
	defer cancel()
	err := s.Shutdown(end)
	return errors.Join(err, <-served)
}

// Listen is Run on a TCP address.
func (s *Server) Listen(ctx context.Context, address string) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("api: listen: %w", err)
	}
	return s.Run(ctx, ln)
}

// cancelGrace is what requests get to notice that their context was cancelled.
const cancelGrace = 2 * time.Second

// Shutdown takes no new requests, ends the waiting of those that wait, and lets the others finish. When ctx ends first
// it cancels them, and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.beginDraining()
	defer s.endRequests()
	err := s.http.ShutdownWithContext(ctx)
	if ctx.Err() == nil {
		return err
	}
	s.endRequests()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelGrace)
	defer cancel()
	s.active.wait(last)
	return ctx.Err()
}

// active counts the requests inside.
type active struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n reaches 0; nil if nobody waits
}

func (a *active) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
}

func (a *active) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n--; a.n == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// wait returns when no request is inside, or when ctx ends.
func (a *active) wait(ctx context.Context) {
	a.mu.Lock()
	if a.n == 0 {
		a.mu.Unlock()
		return
	}
	if a.idle == nil {
		a.idle = make(chan struct{})
	}
	idle := a.idle
	a.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// serverLogger brings fasthttp's few messages about connections into the log.
type serverLogger struct{ log *slog.Logger }

func (l serverLogger) Printf(format string, args ...any) {
	l.log.Debug("connection", "message", fmt.Sprintf(format, args...))
}
