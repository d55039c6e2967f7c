// Package ops serves the operators' pages, on which operators look at the state of the whole
// service and act for partners. Each act is also a command of svc admin, and leaves an entry in the
// audit log. The pages work without JavaScript and load nothing from other hosts.
package ops

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"partnerbilling/api/operator"
	"partnerbilling/models"
)

// Path is the URL path of the pages. Everything below it belongs to them, except the queue
// dashboard.
const Path = "/ops"

const (
	// requestTimeout bounds one request, its database statements and a call of the rail included.
	requestTimeout = 25 * time.Second
	// maxForm is the maximum size of a form, in bytes.
	maxForm = 64 << 10
)

// RailAnswer is the rail's answer about a rail key, beside what the service knows about that key.
type RailAnswer struct {
	Known     models.KeyedDebit
	Status    string // such as succeeded or unknown
	Reason    string // of a refusal
	Detail    string // for people
	HasAmount bool   // the rail reports an amount
	Amount    models.Amount
	Currency  string
}

// Config holds the dependencies of the pages. LookUp and Log are optional.
type Config struct {
	Store *models.Store
	// Admit returns the operator of a request, or answers the request; see operator.Login.
	Admit func(w http.ResponseWriter, r *http.Request) (operator.Operator, bool)
	// LookUp asks the rail about a rail key. It is nil if this process has no rail.
	LookUp      func(ctx context.Context, key string) (RailAnswer, error)
	Environment models.Environment
	// QueuesPath is the path of the queue dashboard.
	QueuesPath string
	// PublicBaseURL is the service's base URL. If it begins with https://, cookies are Secure.
	PublicBaseURL string
	Log           *slog.Logger
}

// Pages serves the operators' pages. It is safe for concurrent use, and keeps no state.
type Pages struct {
	Config
	mux    *http.ServeMux
	origin *http.CrossOriginProtection
}

// New returns the pages, with their routes.
func New(cfg Config) *Pages {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	p := &Pages{Config: cfg, mux: http.NewServeMux(), origin: http.NewCrossOriginProtection()}
	p.mux.Handle("GET "+style.Path, style)
	p.readingRoutes()
	p.actRoutes()
	p.handle("GET "+Path+"/", func(*visit) error { return errNoPage })
	return p
}

// readingRoutes registers the pages.
func (p *Pages) readingRoutes() {
	p.handle("GET "+Path, (*visit).overview)
	p.handle("GET "+Path+"/{$}", (*visit).overview)
	p.handle("GET "+Path+"/search", (*visit).search)
	p.handle("GET "+Path+"/organisation", (*visit).organisation)
	p.handle("GET "+Path+"/batch", (*visit).batch)
	p.handle("GET "+Path+"/payment", (*visit).payment)
	p.handle("GET "+Path+"/webhooks", (*visit).webhooks)
	p.handle("GET "+Path+"/events", (*visit).events)
	p.handle("GET "+Path+"/event", (*visit).event)
	p.handle("GET "+Path+"/pauses", (*visit).pauses)
	p.handle("GET "+Path+"/books", (*visit).books)
	p.handle("GET "+Path+"/log", (*visit).auditLog)
}

// actRoutes registers the acts, which forms of the pages send.
func (p *Pages) actRoutes() {
	p.handle("POST "+Path+"/alert", (*visit).changeAlert)
	p.handle("POST "+Path+"/debits", (*visit).changeDebits)
	p.handle("POST "+Path+"/queue", (*visit).changeQueue)
	p.handle("POST "+Path+"/events", (*visit).redeliverEvents)
	p.handle("POST "+Path+"/event", (*visit).redeliverEvent)
	p.handle("POST "+Path+"/endpoint", (*visit).unparkEndpoint)
	p.handle("POST "+Path+"/lookup", (*visit).lookUp)
}

// ServeHTTP implements http.Handler.
func (p *Pages) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	for name, values := range pageHeaders() {
		w.Header()[name] = values
	}
	req.Body = http.MaxBytesReader(w, req.Body, maxForm)
	p.mux.ServeHTTP(w, req)
}

// handle registers a page or an act. Both need an operator's login.
func (p *Pages) handle(pattern string, serve func(*visit) error) {
	p.mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
		o, ok := p.Admit(w, req)
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), requestTimeout) // the login has its own bounds
		defer cancel()
		if req.Method != http.MethodPost {
			ctx = models.ReadReplica(ctx)
		}
		v := &visit{pages: p, ctx: ctx, w: w, r: req, operator: o}
		defer v.recover()
		if err := v.serve(serve); err != nil {
			v.fail(err)
		}
	})
}
