package queue

import (
	"bytes"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"strings"

	"github.com/hibiken/asynqmon"
)

// DashboardPath is the URL path of the dashboard.
const DashboardPath = "/ops/queues"

// Dashboard serves asynqmon, the web UI of Asynq, to operators. It is read-only, because changes in
// Redis would bypass Postgres. Close releases its connections to Redis.
type Dashboard struct {
	monitor *asynqmon.HTTPHandler
	admit   func(http.ResponseWriter, *http.Request) bool
}

// NewDashboard returns a dashboard. admit reports whether a request comes from an operator. If not,
// it answers the request.
func NewDashboard(redis Redis, admit func(http.ResponseWriter, *http.Request) bool) *Dashboard {
	return &Dashboard{
		monitor: asynqmon.New(asynqmon.Options{
			RootPath: DashboardPath, RedisConnOpt: redis, ReadOnly: true,
		}),
		admit: admit,
	}
}

// contentSecurityPolicy allows what asynqmon's page needs: an inline script and inline styles.
const contentSecurityPolicy = "default-src 'self'; script-src 'self' 'unsafe-inline'; " +
	"style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data:; frame-ancestors 'none'; " +
	"form-action 'self'; base-uri 'self'"

// outsideLinks matches the links of asynqmon's page to web fonts on another host, and to a manifest
// that browsers request without the login. Without the web fonts, the page uses system fonts.
var outsideLinks = regexp.MustCompile(`<link rel="(?:stylesheet" href="https?://|manifest")[^>]*>`)

// pageWriter holds back an HTML page until end, which removes the page's outside links.
type pageWriter struct {
	http.ResponseWriter
	page bytes.Buffer
}

// Write implements http.ResponseWriter.
func (w *pageWriter) Write(b []byte) (int, error) { return w.page.Write(b) }

// end writes the page without its outside links.
func (w *pageWriter) end() {
	page := outsideLinks.ReplaceAll(w.page.Bytes(), nil)
	_, _ = w.ResponseWriter.Write(page)
}

// isPage reports whether asynqmon answers a path with its page. It does so for every path that is
// neither a file nor below /api/.
func isPage(urlPath string) bool {
	rest := strings.TrimPrefix(urlPath, DashboardPath)
	return path.Ext(rest) == "" && !strings.HasPrefix(rest, "/api/")
}

// ServeHTTP serves the dashboard below DashboardPath. It checks the login, and refuses every method
// other than GET and HEAD.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	if !d.admit(w, r) {
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "The dashboard is read-only.", http.StatusMethodNotAllowed)
		return
	}
	if !isPage(r.URL.Path) {
		d.monitor.ServeHTTP(w, r)
		return
	}
	page := &pageWriter{ResponseWriter: w}
	d.monitor.ServeHTTP(page, r)
	page.end()
}

// Close closes the dashboard's connections.
func (d *Dashboard) Close() error {
	if err := d.monitor.Close(); err != nil {
		return fmt.Errorf("queue: close the dashboard: %w", err)
	}
	return nil
}
