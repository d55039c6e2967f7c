package api_test

import (
	"cmp"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/api/auth"
	"partnerbilling/api/ratelimit"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/seal"
)

// newOAuth returns the real API with real keys, and a client's id and secret.
func newOAuth(t *testing.T) (c *apitest.Client, clientID, secret string) {
	t.Helper()
	return newLimitedOAuth(t, nil)
}

func newLimitedOAuth(t *testing.T, limiter api.Limiter) (c *apitest.Client, clientID, secret string) {
	t.Helper()
	store := modelstest.Open(t)
	ring, err := seal.ParseKeyring(seal.GenerateMasterKey())
	check(t, err)
	keys := models.NewKeys(store, ring)
	check(t, keys.Ensure(t.Context()))
	owner, err := store.CreateOrganisation(t.Context(), "Harbour Power")
	check(t, err)
	partner, err := store.CreateClient(t.Context(), owner.ID, "billing run", models.PartnerScopes)
	check(t, err)
	secret, err = store.AddClientSecret(t.Context(), partner.ID)
	check(t, err)
	cfg := auth.Config{URL: "https://billing.example"}
	server := api.New(api.Config{
		Authenticator: auth.NewAuthenticator(store, keys, cfg), Sites: store, Issuer: auth.NewIssuer(store, keys, cfg),
		Limiter: limiter,
	})
	return apitest.New(t, server), partner.ID.String(), secret
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTokenOverHTTP(t *testing.T) {
	t.Parallel()
	c, id, secret := newOAuth(t)
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {id}, "client_secret": {secret}}
	forms := c.With("Content-Type", "application/x-www-form-urlencoded")

	a := forms.Post("/oauth2/token", form.Encode()).Expect(200)
	var granted struct {
		AccessToken string `json:"access_token"`
	}
	check(t, json.Unmarshal(a.Body, &granted))
	if a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("Content-Type") != api.ContentTypeJSON ||
		granted.AccessToken == "" {
		t.Errorf("granted: %v %s", a.Header, a.Body)
	}

	form.Set("client_secret", "wrong")
	a = forms.Post("/oauth2/token", form.Encode()).Expect(401)
	want := `{"error":"invalid_client","error_description":"client authentication failed"}`
	if string(a.Body) != want || !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Basic ") ||
		a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("refused: %v %s", a.Header, a.Body)
	}
	a = c.Post("/oauth2/token", `{"grant_type":"client_credentials"}`).Expect(400)
	if !strings.HasPrefix(string(a.Body), `{"error":"invalid_request",`) {
		t.Errorf("JSON: %s", a.Body)
	}
	c.Get("/oauth2/token").Refused(405, "requests:method-not-allowed")
}

// Only valid credentials are counted, so that a stranger cannot use up a client's limit.
func TestTokensAreLimited(t *testing.T) {
	t.Parallel()
	l := &limiter{decision: ratelimit.Decision{Allowed: true,
		Limits: []ratelimit.Limit{{Name: "tokens", Quota: 100, Window: 10 * time.Second, Remaining: 99,
			Reset: time.Second}}}}
	c, id, secret := newLimitedOAuth(t, l)
	forms := c.With("Content-Type", "application/x-www-form-urlencoded")
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {id}, "client_secret": {secret}}
	a := forms.Post("/oauth2/token", form.Encode()).Expect(200)
	if got := a.Header.Get("RateLimit-Policy") + " " +
		a.Header.Get("RateLimit"); got != `"tokens";q=100;w=10 "tokens";r=99;t=1` {
		t.Errorf("limits %s", got)
	}
	form.Set("client_secret", "wrong")
	forms.Post("/oauth2/token", form.Encode()).Expect(401)
	form.Set("client_secret", secret)
	l.set(ratelimit.Decision{RetryAfter: 1500 * time.Millisecond})
	a = forms.Post("/oauth2/token", form.Encode()).Expect(429)
	want := `{"error":"temporarily_unavailable",` +
		`"error_description":"too many token requests; reuse a token until it expires"}`
	if string(a.Body) != want || a.Header.Get("Retry-After") != "2" || a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v %s", a.Header, a.Body)
	}
	if diff := gocmp.Diff([]ratelimit.Class{ratelimit.Tokens, ratelimit.Tokens}, l.classes); diff != "" {
		t.Error(diff)
	}
}

// The token endpoint refuses every request in RFC 6749's form, and the answer is not cacheable.
func TestTokenErrorsHaveTheirOwnForm(t *testing.T) {
	t.Parallel()
	c, id, secret := newOAuth(t)
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {id}, "client_secret": {secret}}.Encode()
	for name, tt := range map[string]struct {
		query, body, contentType, encoding string
		status                             int
	}{
		"query":            {query: "?scope=x", body: form, status: 400},
		"query, malformed": {query: "?%zz", body: form, status: 400},
		"no body":          {status: 400},
		"malformed":        {body: "%zz", status: 400},
		"multipart":        {body: form, contentType: "multipart/form-data; boundary=x", status: 400},
		"compressed":       {body: form, encoding: "gzip", status: 400},
		"long":             {body: strings.Repeat("a", auth.MaxFormSize), status: 400},
		"over the limit":   {body: strings.Repeat("a", auth.MaxFormSize+1), status: 413},
		"far over it":      {body: strings.Repeat("a", 3<<20), status: 413},
	} {
		forms := c.With("Content-Type", cmp.Or(tt.contentType, "application/x-www-form-urlencoded"))
		if tt.encoding != "" {
			forms = forms.With("Content-Encoding", tt.encoding)
		}
		a := forms.Post("/oauth2/token"+tt.query, tt.body).Expect(tt.status)
		if !strings.HasPrefix(string(a.Body), `{"error":"invalid_request","error_description":"`) ||
			a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v %s", name, a.Header, a.Body)
		}
	}
}

func TestOAuthDocuments(t *testing.T) {
	t.Parallel()
	c, _, _ := newOAuth(t)
	a := c.Get("/.well-known/jwks.json").Expect(200)
	if !strings.HasPrefix(string(a.Body), `{"keys":[{`) || a.Header.Get("Cache-Control") != "public, max-age=300" {
		t.Errorf("key set: %v %s", a.Header, a.Body)
	}
	a = c.Get("/.well-known/oauth-authorization-server").Expect(200)
	if !strings.HasPrefix(string(a.Body), `{"issuer":"https://billing.example",`) ||
		a.Header.Get("Cache-Control") != "public, max-age=3600" {
		t.Errorf("metadata: %v %s", a.Header, a.Body)
	}
}

func TestOutsideIssuer(t *testing.T) {
	t.Parallel()
	c := apitest.New(t, api.New(api.Config{Authenticator: tokens, Sites: tokens}))
	c.With("Content-Type", "application/x-www-form-urlencoded").Post("/oauth2/token", "a=b").
		Refused(404, "requests:not-found")
	c.Get("/.well-known/jwks.json").Refused(404, "requests:not-found")
	c.Get("/.well-known/oauth-authorization-server").Refused(404, "requests:not-found")
}
