package auth_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"

	"partnerbilling/api/auth"
	"partnerbilling/models"
)

// Removing a secret ends the tokens that it obtained, and no others.
func TestTokensEndWithTheirSecret(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	first := s.secret
	ofFirst := "Bearer " + s.token(t, "")
	var err error
	s.secret, err = s.store.AddClientSecret(t.Context(), s.client.ID)
	must(t, err)
	ofSecond := "Bearer " + s.token(t, "")
	for _, token := range []string{ofFirst, ofSecond} {
		_, err := s.auth.Authenticate(t.Context(), token, from)
		must(t, err)
	}
	must(t, s.store.RemoveClientSecret(t.Context(), s.client.ID, models.FingerprintOf(first)))
	s.clock.advance(30 * time.Second)
	if _, err := s.auth.Authenticate(t.Context(), ofFirst, from); !errors.Is(err, auth.ErrInvalidToken) {
		t.Errorf("the removed secret's token: %v", err)
	}
	if _, err := s.auth.Authenticate(t.Context(), ofSecond, from); err != nil {
		t.Errorf("the other secret's token: %v", err)
	}
}

// Tokens of a new secret or key are accepted at once, also if the cached client is older.
func TestTokensOfNewCredentials(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	accept := func(token string) {
		t.Helper()
		_, err := s.auth.Authenticate(t.Context(), "Bearer "+token, from)
		must(t, err)
	}
	accept(s.token(t, ""))
	var err error
	s.secret, err = s.store.AddClientSecret(t.Context(), s.client.ID)
	must(t, err)
	accept(s.token(t, ""))
	must(t, s.store.SetClientJWKS(t.Context(), s.client.ID, keySet(t, "ed")))
	id := s.client.ID.String()
	c := claims{"iss": id, "sub": id, "aud": issuerURL + "/oauth2/token", "exp": s.clock.now().Unix() + 60, "jti": "1"}
	accept(accessToken(t, assertionForm(sign(t, c, jwa.EdDSA(), keyPairs()["ed"], nil))(s, t)))
}

// Replacing the public keys ends the tokens of the keys that are gone.
func TestTokensEndWithTheirKey(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id, now := s.client.ID.String(), s.clock.now().Unix()
	must(t, s.store.SetClientJWKS(t.Context(), s.client.ID, keySet(t, "ed", "p256")))
	token := func(key string, algorithm jwa.SignatureAlgorithm) string {
		c := claims{"iss": id, "sub": id, "aud": issuerURL + "/oauth2/token", "exp": now + 60, "jti": key}
		return "Bearer " + accessToken(t, assertionForm(sign(t, c, algorithm, keyPairs()[key], nil))(s, t))
	}
	ed, p256 := token("ed", jwa.EdDSA()), token("p256", jwa.ES256())
	must(t, s.store.SetClientJWKS(t.Context(), s.client.ID, keySet(t, "p256", "rsa")))
	s.clock.advance(30 * time.Second)
	if _, err := s.auth.Authenticate(t.Context(), ed, from); !errors.Is(err, auth.ErrInvalidToken) {
		t.Errorf("the removed key's token: %v", err)
	}
	if _, err := s.auth.Authenticate(t.Context(), p256, from); err != nil {
		t.Errorf("the kept key's token: %v", err)
	}
	uses, err := s.store.CredentialUses(t.Context(), s.client.ID)
	must(t, err)
	fingerprints, err := auth.KeyFingerprints(keySet(t, "ed", "p256"))
	must(t, err)
	for _, fingerprint := range fingerprints {
		if uses[fingerprint].IsZero() {
			t.Errorf("the use of key %s is not recorded: %v", fingerprint, uses)
		}
	}
}

// A client with allowed addresses gets and uses tokens only from these.
func TestAllowedAddresses(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	token := "Bearer " + s.token(t, "")
	must(t, s.store.SetClientAddresses(t.Context(), s.client.ID,
		[]netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8::/32")}))
	s.clock.advance(30 * time.Second)
	for address, allowed := range map[netip.Addr]bool{
		netip.MustParseAddr("198.51.100.7"):          true,
		netip.MustParseAddr("::ffff:198.51.100.7"):   true,
		netip.MustParseAddr("2001:db8::5"):           true,
		netip.MustParseAddr("198.51.101.1"):          false,
		netip.MustParseAddr("2001:db9::"):            false,
		netip.MustParseAddr("::ffff:198.51.101.255"): false,
		{}: false,
	} {
		if _, err := s.auth.Authenticate(t.Context(), token, address); (err == nil) != allowed ||
			err != nil && !errors.Is(err, auth.ErrInvalidToken) {
			t.Errorf("a token from %s: %v", address, err)
		}
		answer := s.issuer.Token(t.Context(), auth.TokenRequest{
			ContentType:   "application/x-www-form-urlencoded",
			Authorization: basic(s.client.ID.String(), s.secret),
			Body:          []byte(grant().Encode()), RemoteAddress: address,
		})
		if (answer.Status == http.StatusOK) != allowed {
			t.Errorf("a token for %s: %d %s", address, answer.Status, answer.Body)
		}
		var refusal struct{ Error string }
		must(t, json.Unmarshal(answer.Body, &refusal))
		if !allowed && (answer.Status != http.StatusUnauthorized || refusal.Error != "invalid_client") {
			t.Errorf("a token for %s: %d %s", address, answer.Status, answer.Body)
		}
	}
	must(t, s.store.SetClientAddresses(t.Context(), s.client.ID, nil))
	s.clock.advance(30 * time.Second)
	if _, err := s.auth.Authenticate(t.Context(), token, from); err != nil {
		t.Errorf("any address: %v", err)
	}
}

// The use of a secret is recorded at once, and then at most once a minute.
func TestUseOfSecretIsRecorded(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	fingerprint := models.FingerprintOf(s.secret)
	last := func() time.Time {
		uses, err := s.store.CredentialUses(t.Context(), s.client.ID)
		must(t, err)
		return uses[fingerprint]
	}
	if !last().IsZero() {
		t.Error("used before the first token")
	}
	s.ask(t, basic(s.client.ID.String(), "wrong"), grant())
	if !last().IsZero() {
		t.Error("a wrong secret counts as a use")
	}
	s.token(t, "")
	first := last()
	if time.Since(first).Abs() > time.Minute {
		t.Errorf("used at %s", first)
	}
	s.token(t, "")
	must(t, s.store.RecordCredentialUse(t.Context(), s.client.ID, fingerprint))
	if got := last(); !got.Equal(first) {
		t.Errorf("recorded again within a minute: %s, %s", first, got)
	}
	_, err := s.store.DB().ExecContext(t.Context(),
		"UPDATE credential_uses SET used_at = used_at - interval '1 minute'")
	must(t, err)
	s.token(t, "")
	if got := last(); got.Before(first) {
		t.Errorf("not recorded after a minute: %s, %s", first, got)
	}
}

// A client whose use cannot be recorded gets its token.
func TestTokenWithoutRecordOfUse(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, err := s.store.DB().ExecContext(t.Context(), "ALTER TABLE credential_uses ADD CHECK (false) NOT VALID")
	must(t, err)
	if token := s.token(t, ""); token == "" {
		t.Error("no token")
	}
}

func TestKeyFingerprints(t *testing.T) {
	t.Parallel()
	all, err := auth.KeyFingerprints(keySet(t, "ed", "rsa"))
	must(t, err)
	again, err := auth.KeyFingerprints(keySet(t, "rsa", "ed"))
	must(t, err)
	slices.Reverse(again)
	if len(all) != 2 || len(all[0]) != 16 || all[0] == all[1] || !slices.Equal(all, again) {
		t.Errorf("fingerprints %v, %v", all, again)
	}
	if none, err := auth.KeyFingerprints(nil); err != nil || none != nil {
		t.Errorf("of no keys: %v, %v", none, err)
	}
	if _, err := auth.KeyFingerprints(json.RawMessage(`{`)); err == nil {
		t.Error("a malformed set has fingerprints")
	}
}
