package queue

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"

	"github.com/hibiken/asynqmon"
	"github.com/redis/go-redis/v9"
)

// DashboardPath is the URL path of the dashboard.
const DashboardPath = "/ops/queues"

// Dashboard is a read-only asynqmon behind the operator's login. It is read-only because changes in
// Redis would bypass Postgres. Close releases its connections.
type Dashboard struct {
	monitor            *asynqmon.HTTPHandler
	username, password [sha256.Size]byte
}

// redisOptions makes asynqmon connect with the options of the given client.
type redisOptions struct{ options *redis.Options }

// MakeRedisClient implements asynq.RedisConnOpt.
func (o redisOptions) MakeRedisClient() any {
	options := *o.options
	return redis.NewClient(&options)
}

// NewDashboard returns a dashboard that asks for the username and password.
func NewDashboard(client *redis.Client, username, password string) *Dashboard {
	return &Dashboard{
		monitor: asynqmon.New(asynqmon.Options{
			RootPath: DashboardPath, RedisConnOpt: redisOptions{client.Options()}, ReadOnly: true,
		}),
		username: sha256.Sum256([]byte(username)), password: sha256.Sum256([]byte(password)),
	}
}

// contentSecurityPolicy allows the needs of asynqmon's page: an inline script, inline styles and
// web fonts.
const contentSecurityPolicy = "default-src 'self'; script-src 'self' 'unsafe-inline'; " +
	"style-src 'self' 'unsafe-inline' https://fonts.googleapis.com; font-src 'self' https://fonts.gstatic.com; " +
	"img-src 'self' data:; frame-ancestors 'none'; form-action 'self'; base-uri 'self'"

// ServeHTTP checks the login and refuses every method other than GET and HEAD.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	if !d.isOperator(r) {
		header.Set("WWW-Authenticate", `Basic realm="operator", charset="UTF-8"`)
		http.Error(w, "The operator's login is required.", http.StatusUnauthorized)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "The dashboard is read-only.", http.StatusMethodNotAllowed)
		return
	}
	d.monitor.ServeHTTP(w, r)
}

func (d *Dashboard) isOperator(r *http.Request) bool {
	username, password, ok := r.BasicAuth()
	u, p := sha256.Sum256([]byte(username)), sha256.Sum256([]byte(password))
	// Both comparisons always run, so that the time of the answer reveals nothing.
	return ok && subtle.ConstantTimeCompare(u[:], d.username[:])&subtle.ConstantTimeCompare(p[:], d.password[:]) == 1
}

// Close closes the dashboard's connections.
func (d *Dashboard) Close() error {
	if err := d.monitor.Close(); err != nil {
		return fmt.Errorf("queue: close the dashboard: %w", err)
	}
	return nil
}
