package auth_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jws"

	"partnerbilling/api/auth"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/seal"
)

const issuerURL = "https://billing.example"

// from is the address of all callers.
var from = netip.MustParseAddr("192.0.2.1")

// clock is a clock that the test advances.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// server is an authorisation server on a database of its own, with a partner's client.
type server struct {
	store  *models.Store
	ring   *seal.Keyring
	keys   *models.Keys
	issuer *auth.Issuer
	auth   *auth.Authenticator
	clock  *clock

	client models.Client
	secret string
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{store: modelstest.Open(t), clock: &clock{at: time.Now().Truncate(time.Second)}}
	ring, err := seal.ParseKeyring(seal.GenerateMasterKey())
	must(t, err)
	s.ring, s.keys = ring, models.NewKeys(s.store, ring)
	must(t, s.keys.Ensure(t.Context()))
	cfg := auth.Config{URL: issuerURL, Now: s.clock.now}
	s.issuer, s.auth = auth.NewIssuer(s.store, s.keys, cfg), auth.NewAuthenticator(s.store, s.keys, cfg)
	organisation, err := s.store.CreateOrganisation(t.Context(), "Harbour Power")
	must(t, err)
	s.client, s.secret = s.newClient(t, organisation.ID, models.PartnerScopes)
	return s
}

func (s *server) newClient(
	t testing.TB, organisation models.OrganisationID, scopes []models.Scope,
) (models.Client, string) {
	t.Helper()
	client, err := s.store.CreateClient(t.Context(), organisation, "test", scopes)
	must(t, err)
	secret, err := s.store.AddClientSecret(t.Context(), client.ID)
	must(t, err)
	return client, secret
}

// ask sends a form to the token endpoint.
func (s *server) ask(t testing.TB, authorization string, form url.Values) auth.TokenResponse {
	t.Helper()
	return s.issuer.Token(t.Context(), auth.TokenRequest{
		ContentType:   "application/x-www-form-urlencoded",
		Authorization: authorization,
		Body:          []byte(form.Encode()),
		RemoteAddress: from,
	})
}

// token returns an access token of the partner's client.
func (s *server) token(t testing.TB, scope string) string {
	t.Helper()
	return accessToken(t, s.ask(t, basic(s.client.ID.String(), s.secret), grant("scope", scope)))
}

func accessToken(t testing.TB, answer auth.TokenResponse) string {
	t.Helper()
	if answer.Status != http.StatusOK {
		t.Fatalf("status %d: %s (%v)", answer.Status, answer.Body, answer.Err)
	}
	var body struct {
		AccessToken string `json:"access_token"`
	}
	must(t, json.Unmarshal(answer.Body, &body))
	return body.AccessToken
}

func basic(id, secret string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(id)+":"+url.QueryEscape(secret)))
}

// grant returns the form of a client credentials grant with further parameters.
func grant(pairs ...string) url.Values {
	form := url.Values{"grant_type": {"client_credentials"}}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return form
}

// claims are the claims of a token to be signed.
type claims map[string]any

// with returns a copy with changed claims. A nil value removes a claim.
func (c claims) with(pairs ...any) claims {
	changed := claims{}
	for name, value := range c {
		changed[name] = value
	}
	for i := 0; i < len(pairs); i += 2 {
		name, _ := pairs[i].(string)
		if pairs[i+1] == nil {
			delete(changed, name)
		} else {
			changed[name] = pairs[i+1]
		}
	}
	return changed
}

// sign returns a compact JWS of claims.
func sign(t testing.TB, c claims, algorithm jwa.SignatureAlgorithm, key any, header map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(c)
	must(t, err)
	h := jws.NewHeaders()
	for name, value := range header {
		must(t, h.Set(name, value))
	}
	raw, err := jws.Sign(payload, jws.WithKey(algorithm, key, jws.WithProtectedHeaders(h)))
	must(t, err)
	return string(raw)
}

// signingKey returns the server's current signing key and its id.
func (s *server) signingKey(t testing.TB) (ed25519.PrivateKey, string) {
	t.Helper()
	key, err := s.keys.Current(t.Context(), models.KeyAccessToken)
	must(t, err)
	return ed25519.NewKeyFromSeed(key.Secret), key.ID.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
