package queue

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"

	"github.com/hibiken/asynqmon"
	"github.com/redis/go-redis/v9"
)

// DashboardPath is where the dashboard lives.
const DashboardPath = "/ops/queues"

// Dashboard is asynqmon, to look at only: what is deleted or run in Redis by hand would bypass Postgres. Close it at the
// end.
type Dashboard struct {
	monitor            *asynqmon.HTTPHandler
	username, password [sha256.Size]byte
}

// redisOptions hands asynqmon a client with our settings.
type redisOptions struct{ options *redis.Options }

// MakeRedisClient implements asynq.RedisConnOpt.
func (o redisOptions) MakeRedisClient() any {
	options := *o.options
	return redis.NewClient(&options)
}

// NewDashboard makes the dashboard, behind the operator's login.
func NewDashboard(client *redis.Client, username, password string) *Dashboard {
	return &Dashboard{
		monitor: asynqmon.New(asynqmon.Options{
			RootPath: DashboardPath, RedisConnOpt: redisOptions{client.Options()}, ReadOnly: true,
		}),
		username: sha256.Sum256([]byte(username)), password: sha256.Sum256([]byte(password)),
	}
}

// contentSecurityPolicy allows what asynqmon's page needs: a script and styles inline, and web fonts.
const contentSecurityPolicy = "default-src 'self'; script-src 'self' 'unsafe-inline'; " +
	"style-src 'self' 'unsafe-inline' https://fonts.googleapis.com; font-src 'self' https://fonts.gstatic.com; " +
	"img-src 'self' data:; frame-ancestors 'none'; form-action 'self'; base-uri 'self'"

// ServeHTTP asks for the login, and refuses everything that would change something, whatever asynqmon thinks of it.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	if !d.isOperator(r) {
		header.Set("WWW-Authenticate", `Basic realm="operator", charset="UTF-8"`)
		http.Error(w, "The operator's login is needed.", http.StatusUnauthorized)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "The dashboard is to look at only.", http.StatusMethodNotAllowed)
		return
	}
	d.monitor.ServeHTTP(w, r)
}

func (d *Dashboard) isOperator(r *http.Request) bool {
	username, password, ok := r.BasicAuth()
	u, p := sha256.Sum256([]byte(username)), sha256.Sum256([]byte(password))
	// Both are compared in any case, so that the time tells nothing.
	return ok && subtle.ConstantTimeCompare(u[:], d.username[:])&subtle.ConstantTimeCompare(p[:], d.password[:]) == 1
}

// Close closes the dashboard's connections.
func (d *Dashboard) Close() error {
	if err := d.monitor.Close(); err != nil {
		return fmt.Errorf("queue: close the dashboard: %w", err)
	}
	return nil
}

// PingRedis asks Redis for an answer, for readiness checks.
func PingRedis(client *redis.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := client.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("queue: Redis does not answer: %w", err)
		}
		return nil
	}
}
