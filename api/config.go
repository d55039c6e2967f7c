package api

import (
	"log/slog"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"partnerbilling/api/auth"
	"partnerbilling/api/peer"
	"partnerbilling/api/requestlog"
	"partnerbilling/api/web"
	"partnerbilling/models"
)

// Config configures a Server. Authenticator, Sites, Store, Keys and PublicBaseURL are required.
type Config struct {
	Authenticator       Authenticator
	Sites               Sites
	Limiter             Limiter          // nil for no limits
	Issuer              *auth.Issuer     // own authorisation server; nil for an outside one
	Checks              []ReadinessCheck // of /readyz
	SeparateOpsListener bool             // leaves out /livez, /readyz and /metrics; see OpsHandler
	Mounts              []Mount
	Proxies             peer.Proxies // trusted proxies, whose headers name the client's address

	Store         *models.Store // the state of the service
	Keys          *models.Keys  // keys of sign-up and pagination links, and of webhook secrets
	PublicBaseURL string        // as partners and customers reach the service, without a trailing slash
	Sandbox       *Sandbox      // nil in production
	AppLink       web.AppLink   // link of hosted pages to the customer app; zero shows none

	// Notify wakes workers for tasks right after the commit. It must not block. If it is nil, tasks
	// wait for the next poll of a worker.
	Notify func([]models.TaskID)

	Webhooks WebhookDeliverer // delivers test events; nil answers them with 503

	Now            func() time.Time     // wall time of the timestamps in errors; default time.Now
	Log            *slog.Logger         // default slog.Default(); see logs.NewHandler
	TracerProvider trace.TracerProvider // default none; it must use the IDGenerator tracing.SpanIDs
	Metrics        *prometheus.Registry // default a new registry

	Concurrency int           // requests that run at once; 0 for no limit
	QueueWait   time.Duration // the longest time that a request waits for a slot; default 500 ms

	// MemoryLimit is the memory of the process in bytes. It bounds the connections and the request
	// bodies in flight. The default is GOMEMLIMIT, or DefaultMemoryLimit if that is not set.
	MemoryLimit int64
	// MaxConnectionsPerAddress bounds the open connections of a peer address; 0 for no bound.
	// Behind a proxy all clients have the same address.
	MaxConnectionsPerAddress int

	RequestTimeout time.Duration // the time until the answer; default 10 s
	ReadTimeout    time.Duration // the time for a whole request to arrive; default 15 s
	// IdleTimeout is the time between two requests of a connection; default 2 minutes. It exceeds
	// the time after which clients close idle connections (net/http: 90 s), so that no client sends
	// a request on a connection that is being closed.
	IdleTimeout     time.Duration
	ShutdownTimeout time.Duration // the time for open requests once Run's context ends; default 20 s
	DrainTime       time.Duration // first part of ShutdownTimeout: clients close connections
	RecheckInterval time.Duration // time between checks of a held caller; default 14 s

	requests *requestlog.Log // of the sandbox; nil in production
}

// Mount is a handler for everything at and below a path, such as the operator's pages.
type Mount struct {
	Path    string
	Handler fiber.Handler
	// MaxBody returns the largest body for a path, in bytes. If it is nil, the limit is that
	// of ordinary routes, maxOrdinaryBytes.
	MaxBody func(path string) int
	// Page says that errors are answered with an HTML page instead of JSON.
	Page bool
}

// withDefaults returns the configuration with its defaults filled in.
func (cfg Config) withDefaults() Config {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	if cfg.MemoryLimit == 0 {
		cfg.MemoryLimit = memoryLimit()
	}
	cfg.QueueWait = orDefault(cfg.QueueWait, 500*time.Millisecond)
	cfg.RequestTimeout = orDefault(cfg.RequestTimeout, 10*time.Second)
	cfg.ReadTimeout = orDefault(cfg.ReadTimeout, 15*time.Second)
	cfg.IdleTimeout = orDefault(cfg.IdleTimeout, 2*time.Minute)
	cfg.ShutdownTimeout = orDefault(cfg.ShutdownTimeout, 20*time.Second)
	cfg.RecheckInterval = orDefault(cfg.RecheckInterval, defaultRecheckInterval)
	if cfg.Sandbox != nil {
		cfg.requests = requestlog.New()
	}
	return cfg
}

// orDefault returns d if it is positive, and the default value otherwise.
func orDefault(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}
