// Package api serves the HTTP API. The route table (routes.go) states what each operation requires.
// The checks before a handler (chain.go) follow from it, in one order. The catalogue (errors.go)
// holds every error code. The handlers of a noun are in the files that begin with its name.
package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"partnerbilling/api/peer"
	"partnerbilling/api/ratelimit"
	"partnerbilling/api/requestlog"
	"partnerbilling/models"
	"partnerbilling/models/tracing"
)

const (
	// maxHeaderBytes is the maximum size of a request's first line and headers together.
	maxHeaderBytes = 16 << 10
	// writeTimeout bounds the writing of an answer. A stream renews it with every write.
	writeTimeout = 30 * time.Second
)

// Server answers HTTP requests. New creates it. Run, Listen or Serve starts it.
type Server struct {
	now           func() time.Time
	log           *slog.Logger
	tracer        *tracing.Tracer
	metrics       *metrics
	authenticator Authenticator
	sites         *siteCache
	limiter       Limiter
	admission     *admission
	callers       *callerCache
	bodies        *bodyMemory
	connections   *connTable
	routes        []Route
	chain         []check
	methods       []string // known to the router
	router        fasthttp.RequestHandler
	publicBaseURL string
	proxies       peer.Proxies
	http          *fasthttp.Server

	requests *requestlog.Log // nil in production

	drainTime       time.Duration
	shutdownTimeout time.Duration
	recheckInterval time.Duration
	lifetime        context.Context // parent of every request's context
	endRequests     context.CancelFunc
	draining        context.Context // ends when shutdown begins
	beginDraining   context.CancelFunc
	active          active
}

// New returns a server with the service's routes. It registers the server's metrics with
// Config.Metrics.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	return newServer(cfg, routes(cfg))
}

// newServer returns a server with the routes of a table.
func newServer(cfg Config, table []Route) *Server {
	s := &Server{
		now:             cfg.Now,
		log:             cfg.Log,
		tracer:          tracing.New(cfg.TracerProvider),
		metrics:         newMetrics(cfg.Metrics),
		authenticator:   cfg.Authenticator,
		sites:           newSiteCache(cfg.Sites),
		limiter:         cfg.Limiter,
		admission:       newAdmission(cfg.Concurrency, cfg.QueueWait, cfg.Metrics),
		callers:         newCallerCache(cfg.Now),
		bodies:          newBodyMemory(cfg.MemoryLimit, cfg.Metrics),
		connections:     newConnTable(cfg),
		routes:          withDefaults(table, cfg),
		methods:         fiber.DefaultMethods,
		publicBaseURL:   cfg.PublicBaseURL,
		proxies:         cfg.Proxies,
		drainTime:       cfg.DrainTime,
		shutdownTimeout: cfg.ShutdownTimeout,
		recheckInterval: cfg.RecheckInterval,
		requests:        cfg.requests,
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
		StreamRequestBody:            true, // bodies are read only after authentication
		DisablePreParseMultipartForm: true,
		MaxRequestBodySize:           maxBatchBytes,
		ReadBufferSize:               maxHeaderBytes,
		ReduceMemoryUsage:            true,                       // no buffers before the first byte
		Concurrency:                  2 * s.connections.capacity, // the table's bound comes first
		ReadTimeout:                  cfg.ReadTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  cfg.IdleTimeout,
		CloseOnShutdown:              true,
	}
	return s
}

// withDefaults fills in the defaults of a route table.
func withDefaults(table []Route, cfg Config) []Route {
	table = slices.Clone(table)
	for i := range table {
		r := &table[i]
		r.Timeout = orDefault(r.Timeout, cfg.RequestTimeout)
		if r.Bounds == (BodyBounds{}) {
			r.Bounds = ordinaryBody
		}
		if r.Rate == "" {
			r.Rate = ratelimit.Default
		}
	}
	return table
}

// Routes returns a copy of the route table.
func (s *Server) Routes() []Route { return slices.Clone(s.routes) }

// newRouter registers the table with Fiber, which only finds the route.
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

// fiberPath replaces {name} by :name.
func fiberPath(path string) string { return strings.NewReplacer("{", ":", "}", "").Replace(path) }

// hasParam reports whether a route's path has the parameter {name}.
func hasParam(path, name string) bool { return strings.Contains(path, "{"+name+"}") }

// exchange is a request with its context. serve passes it to the Fiber handlers.
type exchange struct {
	ctx     context.Context
	request *Request
}

type exchangeKey struct{}

// exchangeOf returns the exchange of a Fiber context, and records that context in the request.
func exchangeOf(c *fiber.Ctx) exchange {
	x, _ := c.Context().UserValue(exchangeKey{}).(exchange)
	x.request.fiber = c
	return x
}

// serve handles every request that fasthttp could read, from its route to its log line.
func (s *Server) serve(fast *fasthttp.RequestCtx) {
	s.active.begin()
	defer s.active.end()
	started := time.Now()
	r := &Request{
		server: s, began: started, fast: fast, trace: models.NewTraceID(), path: string(fast.URI().PathOriginal()),
		draining: s.draining,
	}
	r.address = r.clientAddress()
	if c, ok := fast.Conn().(*conn); ok {
		c.setPhase(connRunning)
	}
	s.prepare(r)
	method := string(fast.Method())
	ctx := models.WithTraceID(s.lifetime, r.trace)
	ctx, span := s.tracer.StartRequest(ctx, method, traceparent(&fast.Request.Header))
	defer func() {
		s.markUnreadBody(r)
		if s.draining.Err() != nil {
			fast.Response.SetConnectionClose()
		}
		s.record(ctx, span, r, method, time.Since(started))
		r.giveBackBuffer()
	}()
	defer s.recover(ctx, r)
	if err := checkHead(&fast.Request.Header); err != nil {
		s.fail(ctx, r, unreadable(MalformedRequest, err))
		return
	}
	if !slices.Contains(s.methods, method) {
		fast.Request.Header.SetMethod(fiber.MethodTrace) // no route takes it: 404 or 405
	}
	if target := fast.Request.Header.RequestURI(); bytes.HasPrefix(target, []byte("//")) {
		path, _, _ := bytes.Cut(target, []byte("?"))
		r.path = string(path) // fasthttp would parse the first segment as a host
		s.fail(ctx, r, Refuse(NotFound, ""))
		return
	}
	fast.SetUserValue(exchangeKey{}, exchange{ctx, r})
	s.router(fast)
}

// clientAddress returns the address of a request's client. Behind trusted proxies this is the
// address that they report, otherwise the peer's.
func (r *Request) clientAddress() netip.Addr {
	address := peer.FromNet(r.fast.RemoteAddr())
	if len(r.server.proxies) == 0 {
		return address
	}
	return r.server.proxies.Client(address, r.headers(peer.HeaderForwardedFor), r.headers(peer.HeaderForwarded))
}

// strictTransport makes browsers use only HTTPS for a year.
const strictTransport = "max-age=31536000"

// prepare sets the headers that every answer has.
func (s *Server) prepare(r *Request) {
	r.SetHeader("X-Content-Type-Options", "nosniff")
	if strings.HasPrefix(s.publicBaseURL, "https://") {
		r.SetHeader("Strict-Transport-Security", strictTransport)
	}
	if inTree(r.path, "/billing") {
		r.SetHeader(headerVersion, APIVersion)
	}
}

// enter returns the Fiber handler of a route. It runs the route's checks and handler.
func (s *Server) enter(route *Route) fiber.Handler {
	return func(c *fiber.Ctx) error {
		x := exchangeOf(c)
		x.request.route = route
		ctx, cancel := context.WithTimeout(x.ctx, route.Timeout)
		defer cancel()
		defer x.request.slot.release()
		defer x.request.releaseBody()
		if err := s.run(ctx, x.request); err != nil {
			s.fail(ctx, x.request, err)
		}
		return nil
	}
}

// enterMount returns the Fiber handler of a mount. It reads the body and runs the mount's handler.
func (s *Server) enterMount(m Mount) fiber.Handler {
	route := &Route{Path: m.Path, Page: m.Page}
	return func(c *fiber.Ctx) error {
		x := exchangeOf(c)
		x.request.route = route
		defer x.request.releaseBody()
		maxBody := ordinaryBody.Bytes
		if m.MaxBody != nil {
			maxBody = m.MaxBody(x.request.path)
		}
		c.Context().SetRemoteAddr(net.TCPAddrFromAddrPort(netip.AddrPortFrom(x.request.address, 0)))
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

// refuseUnrouted answers a request without a route. Fiber has set the Allow header.
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

// refuseUnreadable answers a request that fasthttp could not read: malformed, too large or too
// slow.
func (s *Server) refuseUnreadable(fast *fasthttp.RequestCtx, err error) {
	r := &Request{fast: fast, trace: models.NewTraceID()}
	if c, ok := fast.Conn().(*conn); ok {
		r.path = c.target() // fasthttp keeps nothing of the request
	}
	ctx := models.WithTraceID(s.lifetime, r.trace)
	s.log.InfoContext(ctx, "request could not be read", "error", err)
	fast.Response.Reset()
	s.prepare(r)
	s.fail(ctx, r, receiveError(err))
	s.metrics.observe("none", "other", fast.Response.StatusCode(), 0)
}

// recover answers a panic with 500. Its details are logged, never shown.
func (s *Server) recover(ctx context.Context, r *Request) {
	if p := recover(); p != nil {
		s.log.ErrorContext(ctx, "panic in a request", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		s.fail(ctx, r, fmt.Errorf("api: panic: %v", p))
	}
}

// markUnreadBody tells the connection whether a request body is left unread. fasthttp itself reads
// and drops a small one.
func (s *Server) markUnreadBody(r *Request) {
	if c, ok := r.fast.Conn().(*conn); ok {
		c.unreadBody.Store(r.hasUnreadBody())
	}
}

// record writes the metrics, the request log and the access log line of a request, and ends its
// span.
func (s *Server) record(
	ctx context.Context, span tracing.RequestSpan, r *Request, method string, took time.Duration,
) {
	path, status := "none", r.fast.Response.StatusCode()
	if r.route != nil {
		path = r.route.Path
	}
	if !slices.Contains(s.methods, method) {
		method = "other"
	}
	s.metrics.observe(path, method, status, took)
	s.recordExchange(r, method, path, took)
	s.logAccess(ctx, r, method, path, took)
	span.End(tracing.Answer{
		Method: method, Route: path, Status: status, TraceID: r.trace,
		Failed: status >= fiber.StatusInternalServerError,
	})
}

// traceparent returns the header traceparent, by which a caller continues its trace. It returns ""
// unless there is exactly one.
func traceparent(h *fasthttp.RequestHeader) string {
	if len(h.Peek("traceparent")) == 0 || len(h.PeekAll("traceparent")) != 1 {
		return ""
	}
	return string(h.Peek("traceparent"))
}
