package auth_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"

	"partnerbilling/api/auth"
	"partnerbilling/models"
)

// outside is an outside authorisation server that only serves its key set.
type outside struct {
	mu       sync.Mutex
	document json.RawMessage
	status   int
	fetches  int
	url      string
}

func newOutside(t *testing.T, document json.RawMessage) *outside {
	t.Helper()
	o := &outside{document: document, status: http.StatusOK}
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	o.url = server.URL
	return o
}

func (o *outside) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fetches++
	w.WriteHeader(o.status)
	_, _ = w.Write(o.document)
}

func (o *outside) set(status int, document json.RawMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status, o.document = status, document
}

func (o *outside) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fetches
}

func (s *server) outsideAuth(o *outside) *auth.Authenticator {
	return auth.NewOutsideAuthenticator(s.store, auth.OutsideIssuer{
		URL: "https://login.example", JWKSURL: o.url, Audience: "billing",
	}, s.clock.now)
}

func outsideClaims(s *server) claims {
	now := s.clock.now().Unix()
	return claims{
		"iss": "https://login.example", "aud": "billing", "sub": s.client.ID.String(), "exp": now + 7200,
		"scope": "openid billing:batches:read customer-app:signups:write",
	}
}

func outsideToken(t *testing.T, s *server, name string, pairs ...any) string {
	t.Helper()
	algorithm := map[string]jwa.SignatureAlgorithm{"ed": jwa.EdDSA(), "p256": jwa.ES256(), "rsa": jwa.RS256()}[name]
	header := map[string]any{"kid": name, "typ": "JWT"}
	return "Bearer " + sign(t, outsideClaims(s).with(pairs...), algorithm, keyPairs()[name], header)
}

func TestOutsideTokens(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	authenticator := s.outsideAuth(newOutside(t, keySet(t, "ed", "p256", "rsa")))
	id, pairs := s.client.ID.String(), keyPairs()
	now := s.clock.now().Unix()
	signed := func(c claims, algorithm jwa.SignatureAlgorithm, key any, header map[string]any) string {
		return "Bearer " + sign(t, c, algorithm, key, header)
	}
	tests := []struct {
		name, header string
		ok           bool
	}{
		{"EdDSA", outsideToken(t, s, "ed"), true},
		{"ES256", outsideToken(t, s, "p256"), true},
		{"RS256", outsideToken(t, s, "rsa"), true},
		{"PS256", signed(outsideClaims(s), jwa.PS256(), pairs["rsa"], map[string]any{"kid": "rsa"}), true},
		{"at+jwt", signed(outsideClaims(s), jwa.EdDSA(), pairs["ed"], map[string]any{"kid": "ed", "typ": "at+jwt"}),
			true},
		{"client_id before sub", outsideToken(t, s, "ed", "client_id", id, "sub", "user 7"), true},
		{"azp before sub", outsideToken(t, s, "ed", "azp", id, "sub", "user 7"), true},
		{"scp", outsideToken(t, s, "ed", "scope", nil, "scp", []string{"billing:batches:read"}), true},

		{"the service's own token", "Bearer " + s.token(t, ""), false},
		{"no key id", signed(outsideClaims(s), jwa.EdDSA(), pairs["ed"], nil), false},
		{"other algorithm for the key", signed(
			outsideClaims(s), jwa.ES256(), pairs["p256"], map[string]any{"kid": "rsa"}), false},
		{"HMAC", signed(outsideClaims(s), jwa.HS256(), []byte(keySet(t, "ed")), map[string]any{"kid": "ed"}), false},
		{"logout token", signed(
			outsideClaims(s), jwa.EdDSA(), pairs["ed"], map[string]any{"kid": "ed", "typ": "logout+jwt"}), false},
		{"other issuer", outsideToken(t, s, "ed", "iss", issuerURL), false},
		{"other audience", outsideToken(t, s, "ed", "aud", issuerURL), false},
		{"expired", outsideToken(t, s, "ed", "exp", now-60), false},
		{"no expiry", outsideToken(t, s, "ed", "exp", nil), false},
		{"unknown client", outsideToken(t, s, "ed", "client_id", models.ClientID{1}.String()), false},
		{"client of another kind", outsideToken(t, s, "ed", "client_id", "dashboard"), false},
	}
	for _, tt := range tests {
		principal, err := authenticator.Authenticate(t.Context(), tt.header, from)
		switch {
		case !tt.ok && !errors.Is(err, auth.ErrInvalidToken):
			t.Errorf("%s: error %v, want ErrInvalidToken", tt.name, err)
		case tt.ok && (err != nil || principal.ClientID != s.client.ID ||
			principal.OrganisationID != s.client.OrganisationID ||
			!slices.Equal(principal.Scopes, []models.Scope{models.ScopeBatchesRead})):
			t.Errorf("%s: %+v, %v", tt.name, principal, err)
		}
	}
}

func TestOutsideKeysRotate(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	o := newOutside(t, keySet(t, "ed"))
	authenticator := s.outsideAuth(o)
	try := func(step string, header string, want error) {
		t.Helper()
		if _, err := authenticator.Authenticate(t.Context(), header, from); !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", step, err, want)
		}
	}
	try("first", outsideToken(t, s, "ed"), nil)
	try("unknown key", outsideToken(t, s, "p256"), auth.ErrInvalidToken)
	o.set(http.StatusOK, keySet(t, "ed", "p256"))
	for i := range 50 {
		try("too soon to fetch again", outsideToken(t, s, "p256", "jti", fmt.Sprint(i)), auth.ErrInvalidToken)
	}
	if n := o.count(); n != 1 {
		t.Errorf("%d fetches, want 1", n)
	}
	s.clock.advance(11 * time.Second)
	try("fetched again", outsideToken(t, s, "p256"), nil)

	for _, broken := range []struct {
		status   int
		document string
	}{
		{500, `{}`}, {200, `no JSON`}, {200, `{"keys":[]}`}, {200, `{"keys":[{"kty":"AKP","kid":"p256"}]}`},
		{200, strings.Repeat(" ", 300<<10)}, {404, string(keySet(t, "rsa"))},
	} {
		o.set(broken.status, json.RawMessage(broken.document))
		s.clock.advance(16 * time.Minute)
		before := o.count()
		try("old set after a failed fetch", outsideToken(t, s, "p256"), nil)
		if o.count() != before+1 {
			t.Error("an old set was not fetched again")
		}
	}
	o.set(http.StatusOK, keySet(t, "rsa"))
	s.clock.advance(16 * time.Minute)
	try("withdrawn key", outsideToken(t, s, "ed"), auth.ErrInvalidToken)
	try("new key", outsideToken(t, s, "rsa"), nil)
}

// Keys that cannot be parsed are ignored, even if they have the key id of another key.
func TestOutsideKeysIgnoreUnsupportedKeys(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, other := range []string{
		`{"kty":"AKP","alg":"ML-DSA-44","kid":"ed","pub":"AA"}`, `{"kty":"RSA","kid":"ed"}`, `{"kid":"ed"}`,
		`{"kty":"EC","crv":"P-999","kid":"ed","x":"AA","y":"AA"}`,
	} {
		set := strings.Replace(string(keySet(t, "ed")), "[", "["+other+",", 1)
		authenticator := s.outsideAuth(newOutside(t, json.RawMessage(set)))
		if _, err := authenticator.Authenticate(t.Context(), outsideToken(t, s, "ed"), from); err != nil {
			t.Errorf("beside %s: %v", other, err)
		}
	}
}

func TestOutsideKeysNeverFetched(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	o := newOutside(t, nil)
	o.set(http.StatusInternalServerError, nil)
	authenticator := s.outsideAuth(o)
	for range 3 {
		_, err := authenticator.Authenticate(t.Context(), outsideToken(t, s, "ed"), from)
		if !errors.Is(err, models.ErrUnavailable) {
			t.Errorf("error %v, want ErrUnavailable", err)
		}
	}
	// A token of another issuer causes no fetch.
	before := o.count()
	s.clock.advance(time.Minute)
	foreign := outsideToken(t, s, "ed", "iss", "https://evil.example")
	if _, err := authenticator.Authenticate(t.Context(), foreign, from); !errors.Is(err, auth.ErrInvalidToken) {
		t.Errorf("error %v, want ErrInvalidToken", err)
	}
	if o.count() != before {
		t.Error("a token of another issuer caused a fetch")
	}
	o.set(http.StatusOK, keySet(t, "ed"))
	if _, err := authenticator.Authenticate(t.Context(), outsideToken(t, s, "ed"), from); err != nil {
		t.Errorf("once the issuer answers: %v", err)
	}
}
