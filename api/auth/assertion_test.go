package auth_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"

	"partnerbilling/api/auth"
	"partnerbilling/models"
)

const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// keyPairs returns a private key of each kind by name. It generates them once, because RSA keys
// take time.
var keyPairs = sync.OnceValue(func() map[string]any {
	_, ed, err1 := ed25519.GenerateKey(nil)
	p256, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, err3 := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	rsa2048, err4 := rsa.GenerateKey(rand.Reader, 2048)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			panic(err)
		}
	}
	return map[string]any{"ed": ed, "p256": p256, "p384": p384, "rsa": rsa2048}
})

// keySet returns a key set of the named public keys.
func keySet(t testing.TB, names ...string) json.RawMessage {
	t.Helper()
	set := jwk.NewSet()
	for _, name := range names {
		public, err := jwk.PublicKeyOf(keyPairs()[name])
		must(t, err)
		must(t, public.Set(jwk.KeyIDKey, name))
		must(t, set.AddKey(public))
	}
	document, err := json.Marshal(set)
	must(t, err)
	return document
}

func assertionForm(assertion string, pairs ...string) func(*server, testing.TB) auth.TokenResponse {
	return func(s *server, t testing.TB) auth.TokenResponse {
		return s.ask(t, "", grant(append(pairs, "client_assertion_type", assertionType, "client_assertion",
			assertion)...))
	}
}

func TestPrivateKeyJWT(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	document := keySet(t, "ed", "p256", "rsa")
	must(t, auth.CheckClientJWKS(document))
	must(t, s.store.SetClientJWKS(t.Context(), s.client.ID, document))
	id, now := s.client.ID.String(), s.clock.now().Unix()
	pairs := keyPairs()
	good := claims{"iss": id, "sub": id, "aud": issuerURL + "/oauth2/token", "exp": now + 60, "iat": now}
	kid := func(name string) map[string]any { return map[string]any{"kid": name} }
	fresh := func() string { return string(models.NewTraceID()) }
	ed := func(pairs2 ...any) string {
		return sign(t, good.with("jti", fresh()).with(pairs2...), jwa.EdDSA(), pairs["ed"], kid("ed"))
	}
	type response = func(*server, testing.TB) auth.TokenResponse
	signed := func(algorithm jwa.SignatureAlgorithm, key any, header map[string]any) response {
		return assertionForm(sign(t, good.with("jti", fresh()), algorithm, key, header))
	}
	_, foreign, err := ed25519.GenerateKey(nil)
	must(t, err)
	other, _ := s.newClient(t, s.client.OrganisationID, models.PartnerScopes)
	disabled, _ := s.newClient(t, s.client.OrganisationID, models.PartnerScopes)
	must(t, s.store.SetClientJWKS(t.Context(), disabled.ID, document))
	must(t, s.store.DisableClient(t.Context(), disabled.ID))
	used := ed()
	accessToken(t, assertionForm(used)(s, t))

	tests := []struct {
		name   string
		answer response
		ok     bool
	}{
		{"EdDSA", assertionForm(ed()), true},
		{"ES256", signed(jwa.ES256(), pairs["p256"], kid("p256")), true},
		{"RS256", signed(jwa.RS256(), pairs["rsa"], kid("rsa")), true},
		{"PS256", signed(jwa.PS256(), pairs["rsa"], kid("rsa")), true},
		{"no key id", signed(jwa.ES256(), pairs["p256"], nil), true},
		{"typ JWT", signed(jwa.EdDSA(), pairs["ed"], map[string]any{"typ": "JWT"}), true},
		{"audience is the issuer", assertionForm(ed("aud", issuerURL)), true},
		{"several audiences", assertionForm(ed("aud", []string{"https://x.example", issuerURL})), true},
		{"5 minutes", assertionForm(ed("exp", now+300)), true},
		{"without iat", assertionForm(ed("iat", nil)), true},
		{"with client_id", assertionForm(ed(), "client_id", id), true},

		{"used before", assertionForm(used), false},
		{"another client_id", assertionForm(ed(), "client_id", other.ID.String()), false},
		{"client without keys", assertionForm(ed("iss", other.ID.String(), "sub", other.ID.String())), false},
		{"unknown client", assertionForm(ed("iss", models.ClientID{1}.String(), "sub", models.ClientID{1}.String())),
			false},
		{"disabled client", assertionForm(ed("iss", disabled.ID.String(), "sub", disabled.ID.String())), false},
		{"other subject", assertionForm(ed("sub", other.ID.String())), false},
		{"no issuer", assertionForm(ed("iss", nil)), false},
		{"other audience", assertionForm(ed("aud", "https://x.example")), false},
		{"no audience", assertionForm(ed("aud", nil)), false},
		{"audience with another path", assertionForm(ed("aud", issuerURL+"/oauth2/tokens")), false},
		{"no jti", assertionForm(ed("jti", nil)), false},
		{"empty jti", assertionForm(ed("jti", "")), false},
		{"long jti", assertionForm(ed("jti", strings.Repeat("x", 257))), false},
		{"no exp", assertionForm(ed("exp", nil)), false},
		{"expired", assertionForm(ed("exp", now-60)), false},
		{"exp too far ahead", assertionForm(ed("exp", now+3600)), false},
		{"not yet valid", assertionForm(ed("nbf", now+60)), false},
		{"issued in the future", assertionForm(ed("iat", now+60)), false},
		{"foreign key", signed(jwa.EdDSA(), foreign, kid("ed")), false},
		{"key id of another key", signed(jwa.EdDSA(), pairs["ed"], kid("rsa")), false},
		{"unknown key id", signed(jwa.EdDSA(), pairs["ed"], kid("x")), false},
		{"HMAC with the client's secret", signed(jwa.HS256(), []byte(s.secret), nil), false},
		{"HMAC with the public key set", signed(jwa.HS256(), []byte(document), nil), false},
		{"RS512", signed(jwa.RS512(), pairs["rsa"], kid("rsa")), false},
		{"ES384", signed(jwa.ES384(), pairs["p384"], nil), false},
		{"an access token", assertionForm(s.token(t, "")), false},
		{"access token's type", signed(jwa.EdDSA(), pairs["ed"], map[string]any{"typ": "at+jwt"}), false},
		{"none", assertionForm(segment(`{"alg":"none"}`) + "." + strings.Split(ed(), ".")[1] + "."), false},
		{"garbage", assertionForm("garbage"), false},
		{"huge", assertionForm(strings.Repeat("e30.", 2500)), false},
	}
	for _, tt := range tests {
		answer := tt.answer(s, t)
		switch {
		case tt.ok:
			if answer.Status != http.StatusOK {
				t.Errorf("%s: %d %s (%v)", tt.name, answer.Status, answer.Body, answer.Err)
			}
		case answer.Status != http.StatusUnauthorized && answer.Status != http.StatusTooManyRequests:
			t.Errorf("%s: %d %s", tt.name, answer.Status, answer.Body)
		case answer.Err == nil:
			t.Errorf("%s: the response has no error for the log", tt.name)
		}
	}
}

// Failed assertions count for the client that the assertion names, even if the form names none.
func TestFailingAssertionsSlowDown(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	must(t, s.store.SetClientJWKS(t.Context(), s.client.ID, keySet(t, "ed")))
	_, foreign, err := ed25519.GenerateKey(nil)
	must(t, err)
	id, now := s.client.ID.String(), s.clock.now()
	assertion := func(jti string, key ed25519.PrivateKey) func(*server, testing.TB) auth.TokenResponse {
		c := claims{"iss": id, "sub": id, "aud": issuerURL, "exp": now.Add(time.Minute).Unix(), "jti": jti}
		return assertionForm(sign(t, c,
			jwa.EdDSA(), key, nil))
	}
	for n := range 12 {
		want := http.StatusUnauthorized
		if n >= 10 {
			want = http.StatusTooManyRequests
		}
		answer := assertion("forged", foreign)(s, t)
		if answer.Status != want || (answer.Header.Get("Retry-After") == "2") != (n >= 10) {
			t.Errorf("attempt %d: %d, want %d; %v", n+1, answer.Status, want, answer.Header)
		}
	}
	if answer := s.ask(t, basic(id, "wrong"), grant()); answer.Status != http.StatusTooManyRequests {
		t.Errorf("other method of the same client: %d", answer.Status)
	}
	own, _ := keyPairs()["ed"].(ed25519.PrivateKey)
	accessToken(t, assertion("own", own)(s, t))
}

func TestConcurrentUseOfAssertion(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	must(t, s.store.SetClientJWKS(t.Context(), s.client.ID, keySet(t, "ed")))
	id, now := s.client.ID.String(), s.clock.now()
	assertion := sign(t, claims{"iss": id, "sub": id, "aud": issuerURL, "exp": now.Add(time.Minute).Unix(),
		"jti": "once"},
		jwa.EdDSA(), keyPairs()["ed"], nil)
	var asking sync.WaitGroup
	statuses := make([]int, 8)
	for i := range statuses {
		asking.Go(func() { statuses[i] = assertionForm(assertion)(s, t).Status })
	}
	asking.Wait()
	granted := 0
	for _, status := range statuses {
		if status == http.StatusOK {
			granted++
		}
	}
	if granted != 1 {
		t.Errorf("an assertion was accepted %d times", granted)
	}
}

func TestCheckClientJWKS(t *testing.T) {
	t.Parallel()
	private, err := jwk.Import(keyPairs()["ed"])
	must(t, err)
	privateDocument, err := json.Marshal(private)
	must(t, err)
	weak := `{"kty":"RSA","e":"AQAB","n":"` + strings.Repeat("A", 10) + strings.Repeat("_", 160) + `"}`
	tests := []struct {
		name, document string
		ok             bool
	}{
		{"all kinds", string(keySet(t, "ed", "p256", "rsa")), true},
		{"empty", `{"keys":[]}`, false},
		{"no document", ``, false},
		{"not a set", `[]`, false},
		{"private", `{"keys":[` + string(privateDocument) + `]}`, false},
		{"secret", `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`, false},
		{"P-384", string(keySet(t, "p384")), false},
		{"short RSA", `{"keys":[` + weak + `]}`, false},
	}
	for _, tt := range tests {
		if err := auth.CheckClientJWKS(json.RawMessage(tt.document)); (err == nil) != tt.ok {
			t.Errorf("%s: %v, want ok %v", tt.name, err, tt.ok)
		}
	}
}
