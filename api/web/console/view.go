package console

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"partnerbilling/api/docs"
	"partnerbilling/api/requestlog"
	"partnerbilling/api/web"
	"partnerbilling/models"
)

//go:embed *.html
var files embed.FS

//go:embed console.css
var ownStyle string

//go:embed console.js
var ownScript string

var (
	style  = web.NewStyle(Path, web.Palette+web.Tables+ownStyle)
	script = web.NewScript(Path, ownScript)
)

// pageHeaders returns the headers of every answer. A page may load the console's style and script,
// show embedded pictures, send requests and forms to the console, and nothing else.
func pageHeaders() http.Header {
	h := web.Headers()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	return h
}

// base holds the data that all pages share.
type base struct {
	Title   string
	Tab     string // the current tab of the navigation
	Faults  []fault
	Poll    bool // the page changes by itself, so the browser loads it again
	Content any

	// Filled in by complete.
	CSRF     string
	SignedIn bool
	Site     *siteName  // of the navigation: the page's Site, else the latest one; nil if there is none
	Sites    []siteName // of the session, the latest first
	Calls    []madeCall
	Clock    bool // the clock can be advanced
	Breaks   bool // faults of the rail can be set
	Partial  bool // the client's scopes do not allow all of the page
	BaseURL  string
	Expires  time.Time // of the session
}

// problem is the page of an error.
type problem struct {
	Title, Message string
	Faults         []fault
	TraceID        string
}

// Loopback reports whether only this machine can open the service's addresses.
func (b *base) Loopback() bool {
	u, err := url.Parse(b.BaseURL)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && address.IsLoopback()
}

// SiteName returns the name of a Site of the session, "" for another Site.
func (b *base) SiteName(id string) string {
	for _, site := range b.Sites {
		if site.ID.String() == id {
			return site.Name
		}
	}
	return ""
}

// complete fills in the fields of a page that follow from the visit.
func (v *visit) complete(b *base, content any) {
	b.Content, b.CSRF, b.Site, b.Calls = content, v.session.CSRF, v.site, v.calls
	b.Breaks, b.Partial = v.console.RailFaults != nil, v.partial
	b.Clock, b.BaseURL, b.Expires = v.console.Clock, v.console.PublicBaseURL, time.Unix(v.session.Expires, 0).UTC()
	b.SignedIn = !v.principal.ClientID.IsZero()
	if b.SignedIn {
		b.Sites = v.knownSites()
	}
	if b.Site == nil && len(b.Sites) > 0 {
		b.Site = &b.Sites[0]
	}
}

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"stylePath":  func() string { return style.Path },
	"scriptPath": func() string { return script.Path },
	"money":      money,
	"time": func(at models.Millis) template.HTML {
		return web.TimeElement(at.Time(), "2 Jan 2006 15:04:05")
	},
	"clock": func(t time.Time) string { return t.UTC().Format("15:04:05.000") },
	"ms": func(d time.Duration) string {
		return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 1, 64) + "\u00a0ms"
	},
	"link":    web.WithQuery,
	"spaced":  spaced,
	"title":   title,
	"short":   func(id any) string { return requestlog.Clip(fmt.Sprint(id), 8) + "…" },
	"traceOf": traceOf,
	"tone":    func(state any) string { return web.Tone(state, "warn") },
	"curl":    curl,
	"plural":  web.Plural,
	"tabOf": func(b *base, name, path, label string) web.Tab {
		return web.Tab{Path: path, Label: label, Current: b.Tab == name}
	},
	"int":        integer,
	"contains":   slices.Contains[[]string],
	"list":       func(items ...string) []string { return items },
	"pretty":     pretty,
	"message":    func(headers []requestlog.Header, body requestlog.Body) message { return message{headers, body} },
	"statusTone": statusTone,
	"png":        pngURL,
}).ParseFS(files, "*.html"))

// message is a request or an answer of the request log.
type message struct {
	Headers []requestlog.Header
	Body    requestlog.Body
}

// integer returns a number of items as an int. n is an int64 or a *int64; nil counts as 0.
func integer(n any) int {
	switch n := n.(type) {
	case int64:
		return int(n)
	case *int64:
		if n != nil {
			return int(*n)
		}
	}
	return 0
}

// pngURL returns the data URI of a PNG as a safe URL, so that a page shows the picture. It returns
// "" for any other text.
func pngURL(text string) template.URL {
	const prefix = "data:image/png;base64,"
	if !strings.HasPrefix(text, prefix) || strings.Trim(text[len(prefix):], base64Alphabet) != "" {
		return ""
	}
	return template.URL(text) //nolint:gosec // only the characters of base64
}

const base64Alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="

// siteCurrency is the currency of all Sites.
const siteCurrency = "AUD"

// money formats an amount for people, in siteCurrency unless a currency is given.
func money(a models.Amount, currency ...string) string {
	if len(currency) > 0 && currency[0] != "" {
		return web.Money(int64(a), currency[0])
	}
	return web.Money(int64(a), siteCurrency)
}

// spaced writes a value of an enum for people: "customerNotActive" as "customer not active".
func spaced(value any) string {
	var b strings.Builder
	for i, r := range fmt.Sprint(value) {
		if r >= 'A' && r <= 'Z' && i > 0 {
			b.WriteByte(' ')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// title is like spaced, with a capital at the beginning.
func title(value any) string {
	text := spaced(value)
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// traceOf returns the trace id in the body of a webhook, "" if it has none.
func traceOf(body string) string {
	var b struct {
		TraceID string `json:"traceId"`
	}
	if json.Unmarshal([]byte(body), &b) != nil {
		return ""
	}
	return b.TraceID
}

// statusTone returns the CSS class that colours an HTTP status.
func statusTone(status int) string {
	switch {
	case status >= http.StatusInternalServerError:
		return "bad"
	case status >= http.StatusBadRequest:
		return "warn"
	}
	return "good"
}

// curl returns a call as a shell command. The command takes the access token from the variable
// TOKEN. A long body is cut off at maxShownBody.
func curl(baseURL string, c madeCall) string {
	var b strings.Builder
	b.WriteString(`curl -H "Authorization: Bearer $TOKEN"`)
	if strings.HasPrefix(c.Path, "/billing/") {
		b.WriteString(" -H 'Svc-Api-Version: " + docs.APIVersion + "'")
	}
	if c.Method != http.MethodGet && (c.Method != http.MethodPost || c.Body == "") {
		b.WriteString(" -X " + c.Method)
	}
	if c.Body != "" {
		b.WriteString(" -H 'Content-Type: application/json' -d " + quote(clipped(c.Body)))
	}
	b.WriteString(" " + quote(baseURL+c.Path))
	return b.String()
}

// maxShownBody is the maximum size of a call's body that a page shows, in bytes.
const maxShownBody = 2 << 10

// clipped returns a body cut to maxShownBody, with an ellipsis if a part is missing.
func clipped(body string) string {
	if len(body) <= maxShownBody {
		return body
	}
	return requestlog.Clip(body, maxShownBody) + "…"
}

// quote quotes a text for a POSIX shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
