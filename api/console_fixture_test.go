package api_test

import (
	"bytes"
	"html"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"partnerbilling/api"
	"partnerbilling/api/auth"
	"partnerbilling/api/web/console"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// consoles is a sandbox's API with its console, real clients, and a wall clock that the test moves.
type consoles struct {
	*billing
	links  *console.SignInLinks
	used   atomic.Int64 // sign-in links used
	keys   *models.Keys
	owner  models.OrganisationID
	id     string // the client id of the first organisation
	secret string
	ahead  atomic.Int64 // lead over the wall clock, as a time.Duration
	tasks  chan []models.TaskID
}

func newConsoles(t *testing.T, change func(*api.Config)) *consoles {
	t.Helper()
	return newConsolesOn(t, modelstest.Open(t), change)
}

// newConsolesOn returns consoles on the given store.
func newConsolesOn(t *testing.T, store *models.Store, change func(*api.Config)) *consoles {
	t.Helper()
	c := &consoles{tasks: make(chan []models.TaskID, 100)}
	c.links = console.NewSignInLinks(func(console.Grant) { c.used.Add(1) })
	c.billing = newBillingOn(t, store, func(cfg *api.Config) {
		own := auth.Config{URL: publicURL}
		cfg.Authenticator, cfg.Issuer = auth.NewAuthenticator(cfg.Store, cfg.Keys, own),
			auth.NewIssuer(cfg.Store, cfg.Keys, own)
		cfg.Sandbox.Links, c.keys = c.links, cfg.Keys
		cfg.Now = func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
		cfg.Notify = func(tasks []models.TaskID) { c.tasks <- tasks }
		if change != nil {
			change(cfg)
		}
	})
	c.owner = organisationOf(t, c.store, c.site)
	c.id, c.secret = c.client(t, c.owner, models.PartnerScopes)
	return c
}

func organisationOf(t *testing.T, store *models.Store, site models.SiteID) (id models.OrganisationID) {
	t.Helper()
	check(t, store.DB().NewRaw("SELECT organisation_id FROM sites WHERE id = ?", site).Scan(t.Context(), &id))
	return id
}

// client creates an API client with a secret.
func (c *consoles) client(t *testing.T, organisation models.OrganisationID, scopes []models.Scope) (id, secret string) {
	t.Helper()
	made, err := c.store.CreateClient(t.Context(), organisation, "engineer", scopes)
	check(t, err)
	secret, err = c.store.AddClientSecret(t.Context(), made.ID)
	check(t, err)
	return made.ID.String(), secret
}

// visitor plays a browser: it keeps the cookie and submits forms.
type visitor struct {
	t      *testing.T
	base   string
	http   *http.Client
	cookie string
	csrf   string // the CSRF token of the last page
	header http.Header
}

// seen is an answer of the console.
type seen struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

func (c *consoles) visitor(t *testing.T) *visitor {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &visitor{t: t, base: c.BaseURL, header: http.Header{}, http: &http.Client{
		Transport: transport, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// signedIn returns a visitor with a session of the first organisation.
func (c *consoles) signedIn(t *testing.T) *visitor {
	t.Helper()
	v := c.visitor(t)
	v.open("/console/session")
	v.submit("/console/session", "clientId", c.id, "clientSecret", c.secret).expect(303)
	v.open("/console").expect(200)
	return v
}

func (v *visitor) open(path string) *seen { return v.send(http.MethodGet, path, "", nil) }

// submit sends a form with the CSRF token of the last page.
func (v *visitor) submit(path string, pairs ...string) *seen {
	form := url.Values{"csrf": {v.csrf}}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return v.send(http.MethodPost, path, "application/x-www-form-urlencoded", strings.NewReader(form.Encode()))
}

// upload sends a form with a file.
func (v *visitor) upload(path, field, content string, pairs ...string) *seen {
	v.t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	pairs = append(pairs, "csrf", v.csrf)
	for i := 0; i+1 < len(pairs); i += 2 {
		check(v.t, w.WriteField(pairs[i], pairs[i+1]))
	}
	f, err := w.CreateFormFile(field, "rows.csv")
	check(v.t, err)
	_, err = io.WriteString(f, content)
	check(v.t, err)
	check(v.t, w.Close())
	return v.send(http.MethodPost, path, w.FormDataContentType(), &b)
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

func (v *visitor) send(method, path, contentType string, body io.Reader) *seen {
	v.t.Helper()
	request, err := http.NewRequestWithContext(v.t.Context(), method, v.base+path, body)
	check(v.t, err)
	request.Header = v.header.Clone()
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	if v.cookie != "" {
		request.Header.Set("Cookie", "svc_console="+v.cookie)
	}
	response, err := v.http.Do(request)
	check(v.t, err)
	content, err := io.ReadAll(response.Body)
	check(v.t, err)
	check(v.t, response.Body.Close())
	s := &seen{v.t, response.StatusCode, response.Header, string(content)}
	s.checkSafe(path)
	for _, cookie := range response.Cookies() {
		if cookie.Name != "svc_console" || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode ||
			cookie.Path != "/console" || !cookie.Secure {
			v.t.Errorf("%s sets the cookie %v", path, cookie)
		}
		v.cookie = cookie.Value
	}
	if found := csrfField.FindStringSubmatch(s.body); found != nil {
		v.csrf = found[1]
	}
	return s
}

// unsafe matches markup that the policy of the pages forbids.
var unsafe = regexp.MustCompile(
	`(?i)<style|<script(?: [^>]*)?>[^<]|\sstyle=|\son[a-z]+=|javascript:|ZgotmplZ|src="(?:https?:)?//`)

// checkSafe checks an answer against the policy of all pages.
func (s *seen) checkSafe(path string) {
	s.t.Helper()
	if s.status == http.StatusRequestEntityTooLarge {
		return // answered by the server, not the console
	}
	policy := s.header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "form-action 'self'",
		"frame-ancestors 'none'"} {
		if !strings.Contains(policy, part) {
			s.t.Errorf("%s: policy %q lacks %s", path, policy, part)
		}
	}
	if strings.Contains(policy, "unsafe") || s.header.Get("X-Content-Type-Options") != "nosniff" ||
		s.header.Get("Referrer-Policy") != "no-referrer" {
		s.t.Errorf("%s: headers %v", path, s.header)
	}
	if found := unsafe.FindString(s.body); found != "" && strings.HasPrefix(s.header.Get("Content-Type"), "text/html") {
		s.t.Errorf("%s has %q", path, found)
	}
	if strings.HasPrefix(s.header.Get("Content-Type"), "text/html") && s.header.Get("Cache-Control") != "no-store" {
		s.t.Errorf("%s may be cached: %v", path, s.header)
	}
}

// expect fails the test unless the answer has the status and the page contains each text.
func (s *seen) expect(status int, texts ...string) *seen {
	s.t.Helper()
	if s.status != status {
		s.t.Fatalf("status %d, want %d: %.3000s", s.status, status, s.body)
	}
	page := html.UnescapeString(s.body)
	for _, text := range texts {
		if !strings.Contains(page, text) {
			s.t.Errorf("the page does not say %q:\n%s", text, page)
		}
	}
	return s
}

// shortHex matches texts that random ids and the names of assets contain now and then.
var shortHex = regexp.MustCompile(`^[0-9a-f]{1,11}$`)

// lacks fails the test if the page says a text.
func (s *seen) lacks(texts ...string) *seen {
	s.t.Helper()
	page := html.UnescapeString(s.body)
	for _, text := range texts {
		if shortHex.MatchString(text) {
			s.t.Fatalf("a random id may contain %q", text)
		}
		if strings.Contains(page, text) {
			s.t.Errorf("the page says %q:\n%s", text, page)
		}
	}
	return s
}

// find returns the last group of a pattern's first match in the page.
func (s *seen) find(pattern string) string {
	s.t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(html.UnescapeString(s.body))
	if found == nil {
		s.t.Fatalf("the page has no %s:\n%s", pattern, s.body)
	}
	return found[len(found)-1]
}

// to returns the header Location.
func (s *seen) to() string { return s.header.Get("Location") }

// page returns the path of a page about the Site.
func (c *consoles) page(rest string) string { return "/console/sites/" + c.site.String() + rest }
