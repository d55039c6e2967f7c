// Package requestlog keeps the latest API requests of a sandbox's organisations in memory, for the
// console and GET /sandbox/requests.
package requestlog

import (
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"partnerbilling/models"
)

// The bounds of the request log: the requests of each organisation, and the number of
// organisations.
const (
	// MaxRequests is the maximum number of requests that are kept of an organisation.
	MaxRequests     = 1000
	maxRequestBytes = 2 << 20
	maxRequestOrgs  = 16
	// loggedPerSecond and loggedBurst bound the rate at which requests of an organisation are kept,
	// so that the log of a load test costs little.
	loggedPerSecond = 50
	loggedBurst     = 500
	// maxBody is the maximum size of a body that is kept, in bytes. The rest is cut off.
	maxBody = 8 << 10
)

// LoggedRequest is an API request with its answer, as the request log keeps it.
type LoggedRequest struct {
	TraceID         models.TraceID
	At              time.Time     // when it was answered
	Took            time.Duration // until the answer
	Method          string
	Target          string // path and query as they were sent, without secrets
	Route           string // the path template of the OpenAPI document; "" for none
	Client          models.ClientID
	Console         bool // the console made it
	Status          int
	ErrorCode       string // of the first fault, with docs.CodePrefix; "" for a success
	RequestHeaders  []Header
	RequestBody     Body
	ResponseHeaders []Header
	ResponseBody    Body
}

// Header is one header of a LoggedRequest.
type Header struct{ Name, Value string }

// Body is the beginning of a body, without secrets.
type Body struct {
	Text string
	Size int  // of the whole body in bytes; -1: it was streamed, and nothing is kept
	Cut  bool // Text lacks the end of the body
}

// Log keeps the latest API requests of this process in memory, in bounded space, without secrets
// and tokens. It is safe for concurrent use. Latest and Find of a nil *Log find nothing.
type Log struct {
	kept    *Recent[LoggedRequest]
	limits  *lru.Cache[models.OrganisationID, *rate.Limiter]
	watches watches
}

// New returns an empty log.
func New() *Log {
	limits, err := lru.New[models.OrganisationID, *rate.Limiter](maxRequestOrgs)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &Log{kept: NewRecent[LoggedRequest](maxRequestOrgs, MaxRequests, maxRequestBytes), limits: limits}
}

// Admits reports whether the log has capacity for another request of an organisation now, and
// counts that request. After a burst of loggedBurst, it refuses requests above loggedPerSecond.
func (l *Log) Admits(organisation models.OrganisationID, now time.Time) bool {
	limit, ok := l.limits.Get(organisation)
	if !ok {
		limit = rate.NewLimiter(loggedPerSecond, loggedBurst)
		l.limits.Add(organisation, limit)
	}
	return limit.AllowN(now, 1)
}

// Add keeps a request of an organisation, and notifies its watches. It redacts the target and the
// headers. The bodies must come from KeepBody, which redacts them.
func (l *Log) Add(organisation models.OrganisationID, e LoggedRequest) {
	e.Target = redact(e.Target)
	size := len(e.Target) + len(e.Route) + len(e.ErrorCode)
	for _, headers := range [][]Header{e.RequestHeaders, e.ResponseHeaders} {
		for i := range headers {
			headers[i].Value = redact(headers[i].Value)
			size += len(headers[i].Name) + len(headers[i].Value)
		}
	}
	size += len(e.RequestBody.Text) + len(e.ResponseBody.Text)
	l.kept.Add(organisation, e, size)
	l.watches.notify(organisation)
}

// Latest returns the requests of an organisation, newest first.
func (l *Log) Latest(organisation models.OrganisationID) []LoggedRequest {
	if l == nil {
		return nil
	}
	return l.kept.Latest(organisation)
}

// Find returns a request of the organisation by its trace id, and whether the log has it.
func (l *Log) Find(organisation models.OrganisationID, trace string) (LoggedRequest, bool) {
	latest := l.Latest(organisation)
	i := slices.IndexFunc(latest, func(e LoggedRequest) bool { return string(e.TraceID) == trace })
	if i < 0 {
		return LoggedRequest{}, false
	}
	return latest[i], true
}

// loggedHeaders are the headers that are kept, in their canonical form. None of them is a
// credential.
var loggedHeaders = func() map[string]string {
	names := make(map[string]string)
	for _, name := range []string{
		// of requests
		"Accept", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-Id", "Prefer", "Svc-Api-Version",
		"Traceparent", "User-Agent",
		// of answers
		"Allow", "Content-Disposition", "Etag", "Idempotent-Replayed", "Location", "Ratelimit", "Ratelimit-Policy",
		"Retry-After", "Www-Authenticate",
	} {
		names[name] = name
	}
	return names
}()

// MaxHeader is the maximum size of a header's value that is kept, in bytes. The rest is cut off.
const MaxHeader = 512

// AppendHeader appends a copy of a header to the list if the log keeps headers of that name. name
// is in canonical form.
func AppendHeader(list []Header, name, value []byte) []Header {
	kept, ok := loggedHeaders[string(name)]
	if !ok {
		return list
	}
	return append(list, Header{kept, Clip(string(value), MaxHeader)})
}

// KeepBody returns a copy of the part of a body that is kept, without secrets.
func KeepBody(body []byte) Body {
	// Twice the length is searched first: redact would not recognise a secret that is cut off.
	text := redact(strings.ToValidUTF8(string(body[:min(len(body), 2*maxBody)]), "\uFFFD"))
	return Body{Text: Clip(text, maxBody), Size: len(body), Cut: len(body) > 2*maxBody || len(text) > maxBody}
}

// Clip cuts a text to at most n bytes and returns it as valid UTF-8. It cuts no character in two.
func Clip(text string, n int) string {
	if !utf8.ValidString(text) { // the check is cheap
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.Clone(text[:n]) // without the rest
}

// redactions find webhook secrets, tokens of sign-ups, codes of payments, tokens and cursors. Each
// runs only on texts that contain one of its marks.
var redactions = []struct {
	marks   []string
	pattern *regexp.Regexp
	with    string
}{
	{
		[]string{"ecret", "oken", "assword"},
		regexp.MustCompile(`("(?:secret|clientSecret|client_secret|accessToken|access_token|token|password)"\s*:\s*")` +
			`(?:[^"\\]|\\.)*("|$)`),
		"${1}[redacted]${2}",
	},
	{
		[]string{"ecret", "oken", "assword"}, // in a query
		regexp.MustCompile(`([?&][A-Za-z_-]*(?:[sS]ecret|[tT]oken|[pP]assword)=)[^&"\\ ]+`), "${1}[redacted]",
	},
	{[]string{"whsec_"}, regexp.MustCompile(`whsec_[A-Za-z0-9+/=%]+`), "whsec_[redacted]"},
	{
		[]string{"/signup", "/customer-app/payment-intents/"},
		regexp.MustCompile(`(/signups?/|/customer-app/payment-intents/)[^/?#"\\ ]+`), "${1}[redacted]",
	},
	{
		[]string{"image/png"}, // QR codes of payments
		regexp.MustCompile(`data:image/png;base64,[A-Za-z0-9+/=]+`), "data:image/png;base64,[redacted]",
	},
	{[]string{"/P/"}, regexp.MustCompile(`/P/[A-Z2-7]{16}`), "/P/[redacted]"}, // of paymentUrl and qrCode
	{[]string{"/receiver/"}, regexp.MustCompile(`/receiver/[A-Za-z0-9_-]+`), "/receiver/[redacted]"},
	{[]string{"cursor="}, regexp.MustCompile(`cursor=[^&"\\ ]+`), "cursor=[redacted]"},
	{[]string{"eyJ"}, regexp.MustCompile(`eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`), "[redacted]"}, // a JWT
}

// redact returns the text with "[redacted]" in place of secrets.
func redact(text string) string {
	for _, r := range redactions {
		if slices.ContainsFunc(r.marks, func(mark string) bool { return strings.Contains(text, mark) }) {
			text = r.pattern.ReplaceAllString(text, r.with)
		}
	}
	return text
}
