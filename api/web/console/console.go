// Package console is the sandbox console: pages on which a partner's engineer looks at and drives
// the API without writing code. The console drives the API by calls in this process, with the
// access token of the session. It has no rules of its own for them. Only the session, the faults of
// the rail and the deliveries of the built-in receiver change without a call. The pages work
// without JavaScript and load nothing from other hosts.
package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"partnerbilling/api/auth"
	"partnerbilling/api/requestlog"
	"partnerbilling/api/web"
	"partnerbilling/models"
)

// Path is the URL path of the console. Everything below it belongs to the console.
const Path = "/console"

// The largest bodies of requests to the console, in bytes: of a batch's rows, and of all others.
const (
	maxBatchForm = 1 << 20
	maxForm      = 64 << 10
)

// MaxBody returns the maximum size of a request's body, in bytes, for a path at or below Path.
func MaxBody(path string) int {
	if strings.HasPrefix(path, Path+"/sites/") && strings.HasSuffix(path, "/batches") {
		return maxBatchForm
	}
	return maxForm
}

// requestTimeout bounds the console's own work in one request. The API calls that it makes have
// only the time-outs of their routes.
const requestTimeout = 25 * time.Second

// Config holds the console's dependencies. Only RailFaults, Links and Log are optional.
type Config struct {
	// API makes one call of the API in this process. It is safe for concurrent use.
	API func(Call) Answer
	// Authenticate verifies an Authorization header from an address; see auth.Authenticator.
	Authenticate func(ctx context.Context, authorization string, from netip.Addr) (auth.Principal, error)
	// Site returns a Site of the organisation, or models.ErrNotFound.
	Site func(ctx context.Context, organisation models.OrganisationID, id models.SiteID) (models.Site, error)
	// Secrets returns the webhook secrets of the organisation, or models.ErrNoWebhookSecret before
	// its first endpoint.
	Secrets func(ctx context.Context, organisation models.OrganisationID) (models.WebhookSecrets, error)
	// ServiceTime returns the service time, which a sandbox may advance.
	ServiceTime func(ctx context.Context) (models.Millis, error)

	// QRCode returns the QR code of a payment URL as a data URI.
	QRCode func(paymentURL string) (string, error)

	Keys          *models.Keys // seal sessions and authenticate the addresses of receivers
	PublicBaseURL string
	OwnIssuer     bool            // clients sign in with their secret; otherwise only with an access token
	Clock         bool            // the clock can be advanced
	RailFaults    RailFaults      // nil: the rail has no faults to set
	Links         *SignInLinks    // nil: no sign-in links
	Requests      *requestlog.Log // recorded by the API
	// Behaviours and PaymentBehaviours describe the behaviours that forms offer: of a customer's
	// account, and of a payment.
	Behaviours, PaymentBehaviours []web.Choice

	Now func() time.Time // wall time
	Log *slog.Logger     // nil: slog.Default()
}

// RailFaults sets faults of the sandbox's rail, such as a bank that is down. *models.Store
// implements it.
type RailFaults interface {
	// SetSandboxFault activates a fault for a duration from now; 0 ends it. It returns
	// models.ErrSandboxFault for an unknown fault or a duration out of range.
	SetSandboxFault(ctx context.Context, fault models.SandboxFault, lasts time.Duration) error
	// ActiveSandboxFaults returns the active faults, with the service time at which each ends.
	ActiveSandboxFaults(ctx context.Context) (map[models.SandboxFault]models.Millis, error)
}

// Console serves the pages. It is safe for concurrent use. It keeps sessions in cookies only.
type Console struct {
	Config
	deliveries *requestlog.Recent[delivery] // what the built-in receiver of this process has received
	mux        *http.ServeMux
}

// New returns the console, with its routes.
func New(cfg Config) *Console {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	c := &Console{Config: cfg, mux: http.NewServeMux()}
	c.deliveries = requestlog.NewRecent[delivery](maxDeliveryOrgs, maxDeliveries, maxDeliveryBytes)
	c.publicRoutes()
	c.sessionRoutes()
	return c
}

// publicRoutes registers the routes that need no session.
func (c *Console) publicRoutes() {
	c.mux.Handle("GET "+style.Path, style)
	c.mux.Handle("GET "+script.Path, script)
	c.mux.HandleFunc("POST "+Path+"/receiver/{token}", c.receive)
	c.mux.HandleFunc("POST "+Path+"/receiver/{token}/{status}", c.receive)
	c.handlePublic("GET /session", c.showSignIn)
	c.handlePublic("POST /session", c.signIn)
	c.handlePublic("GET /enter/{link}", c.showEntry)
	c.handlePublic("POST /enter/{link}", c.enter)
	c.handlePublic("GET /", func(*visit) error { return errNoPage })
}

// sessionRoutes registers the routes that need a session.
func (c *Console) sessionRoutes() {
	c.handle("GET ", c.overview)
	c.handle("GET /{$}", c.overview)
	c.handle("POST /session/end", c.signOut)
	c.handle("POST /sites", c.addSite)
	c.handle("POST /sites/remove", c.removeSite)

	c.handleSite("GET ", c.siteOverview)
	c.handleSite("GET /payments", c.listPayments)
	c.handleSite("POST /payments", c.createPayment)
	c.handleSite("GET /payments/new", c.newPayment)
	c.handleSite("GET /payment", c.showPayment)
	c.handleSite("POST /payment", c.changePayment)
	c.handleSite("GET /batches", c.listBatches)
	c.handleSite("POST /batches", c.submitBatch)
	c.handleSite("GET /batches/new", c.newBatch)
	c.handleSite("GET /batch", c.showBatch)
	c.handleSite("POST /batch", c.changeBatch)
	c.handleSite("GET /batch.csv", c.downloadBatch)
	c.handleSite("GET /customers", c.listCustomers)
	c.handleSite("POST /customers", c.inviteCustomer)
	c.handleSite("GET /customer", c.showCustomer)
	c.handleSite("POST /customer", c.changeCustomer)

	c.handle("GET /webhooks", c.showWebhooks)
	c.handle("POST /webhooks", c.changeWebhooks)
	c.handle("GET /webhooks/event", c.showEvent)
	c.handle("POST /webhooks/event", c.changeEvent)
	c.handle("GET /receiver", c.showReceiver)
	c.handle("POST /receiver", c.changeReceiver)
	c.handle("GET /requests", c.listRequests)
	c.handle("GET /request", c.showRequest)
	if c.Clock {
		c.handle("GET /clock", c.showClock)
		c.handle("POST /clock", c.moveClock)
	}
	if c.RailFaults != nil {
		c.handle("GET /faults", c.showFaults)
		c.handle("POST /faults", c.setFault)
	}
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	for name, values := range pageHeaders() {
		w.Header()[name] = values
	}
	c.mux.ServeHTTP(w, r.WithContext(ctx))
}

// handlePublic registers a page that needs no session. A pattern is a method, a space and a path
// below Path.
func (c *Console) handlePublic(pattern string, serve func(*visit) error) {
	c.mux.HandleFunc(below(Path, pattern), func(w http.ResponseWriter, r *http.Request) {
		v := &visit{console: c, ctx: r.Context(), w: w, r: r}
		defer v.recover()
		if err := v.serve(serve); err != nil {
			v.fail(err)
		}
	})
}

// handle registers a page that needs a session.
func (c *Console) handle(pattern string, serve func(*visit) error) {
	c.handlePublic(pattern, func(v *visit) error {
		if err := v.requireSession(); err != nil {
			return err
		}
		return serve(v)
	})
}

// handleSite registers a page about one Site, which must be the organisation's own.
func (c *Console) handleSite(pattern string, serve func(*visit) error) {
	c.handle(below("/sites/{site}", pattern), func(v *visit) error {
		if err := v.openSite(v.r.PathValue("site")); err != nil {
			return err
		}
		return serve(v)
	})
}

// below puts a prefix before the path of a pattern.
func below(prefix, pattern string) string {
	method, path, _ := strings.Cut(pattern, " ")
	return method + " " + prefix + path
}
