package api_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/lestrrat-go/jwx/v3/jwa"

	"partnerbilling/api"
	"partnerbilling/api/ratelimit"
	"partnerbilling/deploy/local/localtest"
	"partnerbilling/models"
	"partnerbilling/models/postgres"
)

// These tests derive their calls from the route table, so that they cover every new route.

// public are the routes without a token. Every other route requires one.
var public = []string{
	"GET /",
	"GET /livez", "GET /readyz", "GET /metrics", "GET /openapi.json", "GET /docs",
	"GET /docs/reference", "GET /docs/guides/{guide}", "GET /docs/assets/{asset}",
	"POST /oauth2/token", "GET /.well-known/jwks.json", "GET /.well-known/oauth-authorization-server",
	"GET /signup/{token}", "POST /signup/{token}", "GET /P/{code}", "POST /P/{code}",
}

func TestNothingElseIsPublic(t *testing.T) {
	t.Parallel()
	var got []string
	for _, r := range newServer().Routes() {
		if r.Audience == api.Public {
			got = append(got, r.Method+" "+r.Path)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(slices.Values(public)), got); diff != "" {
		t.Errorf("public routes (-want +got):\n%s", diff)
	}
}

// The routes with a large body share the rate limit of submissions.
func TestLargeBodiesAreInTheBatchClass(t *testing.T) {
	t.Parallel()
	var got []string
	for _, r := range newServer().Routes() {
		if r.Bounds == api.BatchBody && r.Rate != ratelimit.Batches {
			t.Errorf("%s %s is in the class %s", r.Method, r.Path, r.Rate)
		}
		if r.Rate == ratelimit.Batches {
			got = append(got, r.Path)
		}
	}
	batches := "/billing/sites/{siteId}/batches"
	if diff := cmp.Diff([]string{batches, batches + "/validation", batches + "/{batchReference}/retry"},
		got); diff != "" {
		t.Error(diff)
	}
}

// refusedAuthorizations maps faults to Authorization headers and the challenges that answer them.
func (m *matrix) refusedAuthorizations(t *testing.T) map[string]struct{ header, challenge string } {
	t.Helper()
	good := m.good.sign(t)
	parts := strings.Split(good, ".")
	encode := base64.RawURLEncoding.EncodeToString
	ours, _ := m.good.key.(ed25519.PrivateKey)
	public, _ := ours.Public().(ed25519.PublicKey)
	_, stranger, err := ed25519.GenerateKey(nil)
	check(t, err)
	disabled := m.client(t, m.partner.OrganisationID, models.PartnerScopes)
	check(t, m.store.DisableClient(t.Context(), disabled.ID))
	past, future := time.Now().Add(-time.Minute).Unix(), time.Now().Add(time.Hour).Unix() // of the whole test
	none := fmt.Sprintf(`{"alg":"none","typ":"at+jwt","kid":%q}`, m.good.header["kid"])

	type refused = struct{ header, challenge string }
	headers := map[string]refused{
		"empty":         {"", "Bearer"},
		"other scheme":  {"Basic " + base64.StdEncoding.EncodeToString([]byte(m.partner.ID.String()+":x")), "Bearer"},
		"no scheme":     {good, "Bearer"},
		"only a scheme": {"Bearer", `Bearer error="invalid_token"`},
	}
	for name, token := range map[string]string{
		"garbage":              "garbage",
		"three garbage parts":  "a.b.c",
		"cut off":              good[:len(good)-4],
		"two tokens":           good + "," + good,
		"expired":              m.good.with("iat", past-3600).with("exp", past).sign(t),
		"not yet valid":        m.good.with("nbf", future).sign(t),
		"from the future":      m.good.with("iat", future).sign(t),
		"wrong audience":       m.good.with("aud", "https://elsewhere.example").sign(t),
		"wrong issuer":         m.good.with("iss", "https://elsewhere.example").sign(t),
		"wrong key":            m.good.signedBy(jwa.EdDSA(), stranger).sign(t),
		"unknown key id":       m.good.headed("kid", models.KeyID(uuid.New()).String()).sign(t),
		"unknown key and id":   m.good.headed("kid", "mine").signedBy(jwa.EdDSA(), stranger).sign(t),
		"no algorithm":         encode([]byte(none)) + "." + parts[1] + ".",
		"HMAC with public key": m.good.signedBy(jwa.HS256(), []byte(public)).sign(t),
		"not an access token":  m.good.headed("typ", "JWT").sign(t),
		"changed":              parts[0] + "." + encode([]byte(`{"scope":"everything"}`)) + "." + parts[2],
		"disabled client":      m.good.of(disabled.ID).sign(t),
		"unknown client":       m.good.of(models.ClientID(uuid.New())).sign(t),
		"other organisation":   m.good.with("org", models.OrganisationID(uuid.New()).String()).sign(t),
	} {
		headers[name] = refused{"Bearer " + token, `Bearer error="invalid_token"`}
	}
	return headers
}

// Every route refuses a call without a valid token before any other fault.
func TestEveryRouteRequiresAToken(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	m.refuse()
	headers := m.refusedAuthorizations(t)
	for _, r := range m.authenticated() {
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			invalidToken := refusal{code: api.InvalidToken, challenge: "Bearer"}
			invalidToken.is(t, r.Path, m.send(t, r, m.wrong()))
			for name, c := range headers {
				t.Run(name, func(t *testing.T) {
					a := m.send(t, r, m.wrong().as(c.header))
					refusal{code: api.InvalidToken, challenge: c.challenge}.is(t, r.Path, a)
				})
			}
			if r.Method == http.MethodGet {
				if a := m.send(t, r, m.wrong(), http.MethodHead); a.Status != http.StatusUnauthorized ||
					len(a.Body) > 0 {
					t.Errorf("HEAD: status %d, body %s", a.Status, a.Body)
				}
			}
		})
	}
	if len(m.limiter.classes) > 0 {
		t.Error("strangers are counted")
	}
}

// A token that cannot be verified now is answered with 503, not with 401.
func TestEveryRouteIsUnavailableWithoutPostgres(t *testing.T) {
	t.Parallel()
	m := newMatrixWith(t, func(*models.Store) *models.Store {
		store, err := models.Open(postgres.Config{DSN: "postgres://svc@" + localtest.FreeAddress(t) + "/svc"})
		check(t, err)
		t.Cleanup(func() { _ = store.Close() })
		return store
	})
	for _, r := range m.authenticated() {
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			a := m.send(t, r, m.wrong().by(t, m.parts(r)))
			refusal{code: api.Unavailable}.is(t, r.Path, a)
			if got := a.Header.Get("Retry-After"); got != "1" {
				t.Errorf("Retry-After %q", got)
			}
		})
	}
}

// Each step mends the answered fault, so that the next check's fault must be answered.
func TestEveryRouteChecksInOrder(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	for _, r := range m.authenticated() {
		t.Run(r.Method+" "+r.Path, func(t *testing.T) { m.tryInOrder(t, r) })
	}
}

func (m *matrix) tryInOrder(t *testing.T, r api.Route) {
	expect := func(c call, want refusal) {
		t.Helper()
		want.is(t, r.Path, m.send(t, r, c))
	}
	c := m.wrong().as("Bearer garbage")
	m.refuse()
	expect(c, refusal{code: api.InvalidToken, challenge: `Bearer error="invalid_token"`})
	c = c.by(t, m.narrow(r))
	limited := m.send(t, r, c)
	refusal{code: api.RateLimited}.is(t, r.Path, limited)
	if got := limited.Header.Get("Retry-After"); got != "2" {
		t.Errorf("Retry-After %q", got)
	}
	m.allow()
	expect(c, insufficient(r))
	c = c.by(t, m.parts(r))
	if strings.Contains(r.Path, "{siteId}") {
		expect(c, refusal{code: api.SiteNotAccessible, target: "siteId"})
	}
	c.site = m.site
	if r.Version != api.VersionIgnored {
		expect(c, refusal{code: api.UnsupportedAPIVersion, target: version})
		c.version = nil
	}
	if r.Version == api.VersionRequired {
		expect(c, refusal{code: api.UnsupportedAPIVersion, target: version})
		right := api.APIVersion
		c.version = &right
	}
	if r.Body != api.NoBody {
		expect(c, refusal{code: api.UnsupportedMediaType, target: "Content-Encoding"})
		c.encoding = "identity"
		expect(c, refusal{code: api.UnsupportedMediaType, target: "Content-Type"})
		c.contentType = "application/json"
	}
	expect(c, refusal{code: inArea(r, "invalid-parameter"), target: "x",
		message: "x is not a parameter of this operation"})
	c.query = ""
	large := c
	large.body, large.unasked = strings.Repeat("{", r.Bounds.Bytes+1), true
	expect(large, refusal{code: api.BodyTooLarge,
		message: fmt.Sprintf("The body must have at most %d bytes.", r.Bounds.Bytes)})
	if r.Body != api.NoBody {
		expect(c, refusal{code: api.MalformedJSON, message: "The body is not complete JSON (at byte 1)."})
		c.body = "{}"
	}
	if r.Param.Name != "" {
		expect(c, refusal{code: r.Param.NotFound, target: r.Param.Name})
	}
}

// A list answers the faults of its filters together with unknown parameters.
func TestEveryListNamesEveryFaultOfItsQuery(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	for _, r := range m.authenticated() {
		if !r.Paged {
			continue
		}
		t.Run(r.Path, func(t *testing.T) {
			version := api.APIVersion
			c := call{site: m.site, version: &version, query: "?other=1&limit=0&another"}.by(t, m.parts(r))
			code := string(inArea(r, "invalid-parameter"))
			a := m.send(t, r, c)
			if strings.HasPrefix(r.Path, "/checkout") { // Shape B
				complains(t, a, 400, "other is not a parameter of this operation",
					"another is not a parameter of this operation",
					"limit must be an integer from 1 to 100")
				return
			}
			a.Refused(400, code+" other", code+" another", code+" limit")
		})
	}
}

// narrow returns a token with every scope but the route's, or one of the other audience.
func (m *matrix) narrow(r api.Route) jwtParts {
	if r.Scope == "" {
		return m.misplaced(r)
	}
	scopes := models.PartnerScopes
	if r.Audience == api.CustomerApp {
		scopes = models.CustomerAppScopes
	}
	return m.parts(r).scoped(slices.DeleteFunc(slices.Clone(scopes), func(s models.Scope) bool { return s == r.Scope }))
}

// misplaced returns a partner's token for a route of the customer app, and vice versa.
func (m *matrix) misplaced(r api.Route) jwtParts {
	if r.Audience == api.CustomerApp {
		return m.good
	}
	return m.app
}

func insufficient(r api.Route) refusal {
	challenge := `Bearer error="insufficient_scope"`
	if r.Scope != "" {
		challenge += fmt.Sprintf(`, scope=%q`, r.Scope)
	}
	return refusal{code: api.InsufficientScope, challenge: challenge}
}

func TestEveryRouteRequiresItsScope(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	all := slices.Concat(models.PartnerScopes, models.CustomerAppScopes)
	for _, r := range m.authenticated() {
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			for name, token := range map[string]jwtParts{
				"all but its own": m.narrow(r),
				"none":            m.parts(r).scoped(nil),
				"begins alike":    m.narrow(r).scoped([]models.Scope{r.Scope + ":all", "billing"}),
				"other side":      m.misplaced(r),
				// A token's scope counts only if its client has the scope.
				"other side with all": m.misplaced(r).scoped(all),
			} {
				t.Run(name, func(t *testing.T) { insufficient(r).is(t, r.Path, m.send(t, r, m.wrong().by(t, token))) })
			}
		})
	}
}

// A Site of another organisation is answered like a missing Site.
func TestEveryRouteKeepsSitesApart(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	for _, r := range m.authenticated() {
		if !strings.Contains(r.Path, "{siteId}") {
			continue
		}
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			c := m.wrong().by(t, m.parts(r))
			foreign := m.send(t, r, c)
			for _, id := range []string{
				"site_01932c07-0000-7000-8000-00000000dead", "site_00000000-0000-0000-0000-000000000000", "x", "%ff",
				strings.ToUpper(m.site), m.site + "%20", strings.TrimPrefix(m.site, "site_"),
				m.partner.OrganisationID.String(), m.site + "%2F" + m.site,
			} {
				c.site = id
				a := m.send(t, r, c)
				refusal{code: api.SiteNotAccessible, target: "siteId"}.is(t, r.Path, a)
				body := strings.Replace(string(a.Body), a.TraceID(), foreign.TraceID(), 1)
				if body != string(foreign.Body) {
					t.Errorf("%s: %s, but of a foreign Site %s", id, a.Body, foreign.Body)
				}
				a.Header.Set("Date", foreign.Header.Get("Date"))
				if diff := cmp.Diff(foreign.Header, a.Header); diff != "" {
					t.Errorf("%s: headers (-foreign +this):\n%s", id, diff)
				}
			}
		})
	}
}

// reachable returns the methods of a path, as Allow lists them.
func (m *matrix) reachable(path string) []string {
	var methods []string
	segments := strings.Split(path, "/")
	for _, r := range m.routes {
		template := strings.Split(r.Path, "/")
		matches := func(t, s string) bool { return t == s || strings.HasPrefix(t, "{") && s != "" }
		if !slices.EqualFunc(template, segments, matches) {
			continue
		}
		methods = append(methods, r.Method)
		if r.Method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}

func TestEveryPathListsItsMethods(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	for _, r := range m.routes {
		path := fill(r, m.site, "x")
		want := m.reachable(path)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE",
			"BREW", "get"} {
			if slices.Contains(want, method) {
				continue
			}
			a := m.Send(method, path, nil).Expect(http.StatusMethodNotAllowed)
			got := strings.Split(a.Header.Get("Allow"), ", ")
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s %s: Allow (-want +got):\n%s", method, path, diff)
			}
		}
	}
}

func TestEveryPathIsExact(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	for _, r := range m.routes {
		path := fill(r, m.site, "x")
		refusal{code: api.NotFound}.is(t, "/"+path,
			m.RawUnchecked(r.Method+" /"+path+" HTTP/1.1\r\nHost: x\r\n\r\n", 1)[0])
		if path == "/" {
			continue // the path has no variants
		}
		variants := []string{path + "/", path + "//x", path[:strings.LastIndex(path, "/")+1]}
		for i, segment := range strings.Split(r.Path, "/") {
			if segment != "" && segment[0] != '{' {
				changed := strings.Split(path, "/")
				changed[i] = strings.ToUpper(segment)
				variants = append(variants, strings.Join(changed, "/"))
			}
		}
		for _, variant := range variants {
			if methods := m.reachable(variant); len(methods) > 0 {
				continue // the variant is another route's path
			}
			a := m.Send(r.Method, variant, nil)
			if a.Status != http.StatusNotFound {
				t.Errorf("%s %s: status %d", r.Method, variant, a.Status)
				continue
			}
			refusal{code: api.NotFound}.is(t, variant, a)
		}
	}
}
