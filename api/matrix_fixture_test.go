package api_test

import (
	"crypto/ed25519"
	"encoding/json"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jws"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/api/auth"
	"partnerbilling/api/ratelimit"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// matrix is the whole route table on a real database with real tokens, to be tested route by route.
type matrix struct {
	*apitest.Client // without a token
	routes          []api.Route
	limiter         *limiter
	store           *models.Store

	good    jwtParts // a partner's token with every scope
	app     jwtParts // the customer app's, likewise
	partner models.Client
	site    string // the partner's
	foreign string // another organisation's
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	return newMatrixWith(t, func(s *models.Store) *models.Store { return s })
}

// newMatrixWith returns a matrix with its own store for the look-up of clients.
func newMatrixWith(t *testing.T, clients func(*models.Store) *models.Store) *matrix {
	t.Helper()
	m := &matrix{store: modelstest.Open(t), limiter: &limiter{}}
	keys := newKeys(t, m.store)
	owner, site := m.organisation(t, "Harbour Power")
	_, foreign := m.organisation(t, "Hill Water")
	m.site, m.foreign = site.ID.String(), foreign.ID.String()
	m.partner = m.client(t, owner.ID, models.PartnerScopes)
	m.good = partsOf(t, m.store, keys, m.partner)
	m.app = partsOf(t, m.store, keys, m.client(t, models.OrganisationID{}, models.CustomerAppScopes))
	cfg := auth.Config{URL: publicURL}
	server := api.New(api.Config{
		Authenticator: auth.NewAuthenticator(clients(m.store), keys, cfg), Issuer: auth.NewIssuer(m.store, keys, cfg),
		Sites: m.store, Store: m.store, Keys: keys, Limiter: m.limiter, PublicBaseURL: publicURL,
		Sandbox: &api.Sandbox{Clock: true}, Log: slog.New(slog.DiscardHandler),
		Now: noon.Time, // so that timestamps of errors are equal
	})
	m.routes = server.Routes()
	m.Client = apitest.New(t, server)
	m.allow()
	return m
}

func (m *matrix) organisation(t *testing.T, name string) (models.Organisation, models.Site) {
	t.Helper()
	o, err := m.store.CreateOrganisation(t.Context(), name)
	check(t, err)
	s, err := m.store.CreateSite(t.Context(), o.ID, "North Quay")
	check(t, err)
	return o, s
}

func (m *matrix) client(t *testing.T, owner models.OrganisationID, scopes []models.Scope) models.Client {
	t.Helper()
	c, err := m.store.CreateClient(t.Context(), owner, "matrix", scopes)
	check(t, err)
	return c
}

// limits are the limits in the limiter's decision.
var limits = []ratelimit.Limit{{Name: "default", Quota: 9, Window: time.Second, Remaining: 8, Reset: time.Second}}

func (m *matrix) allow() { m.limiter.set(ratelimit.Decision{Allowed: true, Limits: limits}) }
func (m *matrix) refuse() {
	m.limiter.set(ratelimit.Decision{RetryAfter: 1500 * time.Millisecond, Limits: limits})
}

// authenticated returns the routes that require a token.
func (m *matrix) authenticated() []api.Route {
	return slices.DeleteFunc(slices.Clone(m.routes), func(r api.Route) bool { return r.Audience == api.Public })
}

// parts returns a token with every scope of the route's audience.
func (m *matrix) parts(r api.Route) jwtParts {
	if r.Audience == api.CustomerApp {
		return m.app
	}
	return m.good
}

// call is a request to a route, with all that can be right or wrong about it.
type call struct {
	authorization *string // nil: no header
	site, param   string  // as in the path
	version       *string
	contentType   string
	encoding      string
	query         string
	body          string
	unasked       bool // send the body even to a route that accepts none
}

// wrong returns a call with all faults at once.
func (m *matrix) wrong() call {
	version := "v0"
	return call{
		site: m.foreign, param: "%ff", version: &version, contentType: "text/plain", encoding: "gzip", query: "?x=1",
		body: "{",
	}
}

func (c call) as(authorization string) call {
	c.authorization = &authorization
	return c
}

func (c call) by(t *testing.T, token jwtParts) call { return c.as("Bearer " + token.sign(t)) }

// send sends a call, with the given method instead of the route's.
func (m *matrix) send(t *testing.T, r api.Route, c call, method ...string) *apitest.Answer {
	t.Helper()
	client := m.For(t).With("Content-Encoding", c.encoding)
	if c.authorization != nil {
		client = client.With("Authorization", *c.authorization)
	}
	if c.version != nil {
		client = client.With("Svc-Api-Version", *c.version)
	}
	var body any
	if r.Body != api.NoBody || c.unasked {
		client, body = client.With("Content-Type", c.contentType), c.body
	}
	return client.Send(append(method, r.Method)[0], fill(r, c.site, c.param)+c.query, body)
}

var pathParam = regexp.MustCompile(`\{\w+\}`)

// fill returns a route's path with its parameters.
func fill(r api.Route, site, param string) string {
	return pathParam.ReplaceAllString(strings.Replace(r.Path, "{siteId}", site, 1), param)
}

// refusal is the expected refusal of a call.
type refusal struct {
	code      api.Code
	target    string
	message   string // default the catalogue's
	challenge string // WWW-Authenticate
}

func entryOf(code api.Code) api.Entry {
	i := slices.IndexFunc(api.Catalogue(), func(e api.Entry) bool { return e.Code == code })
	if i < 0 {
		return api.Entry{}
	}
	return api.Catalogue()[i]
}

// inArea returns the code of that name in the route's area if there is one, else in the area
// requests.
func inArea(r api.Route, name string) api.Code {
	if code := api.Code(r.Area + ":" + name); entryOf(code).Status != 0 {
		return code
	}
	return api.Code("requests:" + name)
}

// is fails the test unless an answer refuses a call to the path as expected. The client has checked
// the answer against the description already.
func (w refusal) is(t *testing.T, path string, a *apitest.Answer) {
	t.Helper()
	a.Expect(entryOf(w.code).Status)
	fault := apitest.Fault{Code: string(w.code), Target: w.target, Message: w.message}
	if w.message == "" {
		fault.Message = entryOf(w.code).Message
	}
	if strings.HasPrefix(path, "/checkout") {
		fault.Code, fault.Target = "", "" // Shape B has neither
	}
	if diff := cmp.Diff([]apitest.Fault{fault}, a.Faults()); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	w.checkHeaders(t, path, a)
}

func (w refusal) checkHeaders(t *testing.T, path string, a *apitest.Answer) {
	t.Helper()
	version := ""
	if strings.HasPrefix(path, "/billing/") {
		version = api.APIVersion
	}
	policy := `"default";q=9;w=1`
	if slices.Contains([]api.Code{api.NotFound, api.InvalidToken, api.Unavailable}, w.code) {
		policy = "" // the client is not authenticated yet
	}
	for name, want := range map[string]string{
		"Content-Type": api.ContentTypeJSON, "WWW-Authenticate": w.challenge, "Svc-Api-Version": version,
		"RateLimit-Policy": policy,
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if id := a.TraceID(); !hex32.MatchString(id) {
		t.Errorf("traceId %q", id)
	}
}

// jwtParts builds a token.
type jwtParts struct {
	header, claims map[string]any
	algorithm      jwa.SignatureAlgorithm
	key            any
}

// partsOf returns a valid token of a client, as the authorisation server would issue it for a new
// secret of the client.
func partsOf(t *testing.T, store *models.Store, keys *models.Keys, c models.Client) jwtParts {
	t.Helper()
	secret, err := store.AddClientSecret(t.Context(), c.ID)
	check(t, err)
	key, err := keys.Current(t.Context(), models.KeyAccessToken)
	check(t, err)
	now := time.Now().Unix()
	p := jwtParts{
		header: map[string]any{"typ": "at+jwt", "kid": key.ID.String()},
		claims: map[string]any{
			"iss": publicURL, "aud": publicURL, "sub": c.ID.String(), "client_id": c.ID.String(), "iat": now,
			"exp": now + 3600,
			"jti": uuid.NewString(), "cred": models.FingerprintOf(secret),
		},
		algorithm: jwa.EdDSA(), key: ed25519.NewKeyFromSeed(key.Secret),
	}
	if !c.OrganisationID.IsZero() {
		p.claims["org"] = c.OrganisationID.String()
	}
	return p.scoped(c.Scopes)
}

func (p jwtParts) scoped(scopes []models.Scope) jwtParts {
	texts := make([]string, len(scopes))
	for i, s := range scopes {
		texts[i] = string(s)
	}
	return p.with("scope", strings.Join(texts, " "))
}

// with returns a copy with another claim.
func (p jwtParts) with(claim string, value any) jwtParts {
	p.claims = maps.Clone(p.claims)
	p.claims[claim] = value
	return p
}

// headed returns a copy with another header.
func (p jwtParts) headed(name string, value any) jwtParts {
	p.header = maps.Clone(p.header)
	p.header[name] = value
	return p
}

// signedBy returns a copy that another key signs.
func (p jwtParts) signedBy(algorithm jwa.SignatureAlgorithm, key any) jwtParts {
	p.algorithm, p.key = algorithm, key
	return p
}

// of returns a copy for another client.
func (p jwtParts) of(c models.ClientID) jwtParts {
	return p.with("sub", c.String()).with("client_id", c.String())
}

func (p jwtParts) sign(t *testing.T) string {
	t.Helper()
	payload, err := json.Marshal(p.claims)
	check(t, err)
	h := jws.NewHeaders()
	for name, value := range p.header {
		check(t, h.Set(name, value))
	}
	raw, err := jws.Sign(payload, jws.WithKey(p.algorithm, p.key, jws.WithProtectedHeaders(h)))
	check(t, err)
	return string(raw)
}
