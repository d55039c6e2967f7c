package auth_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/lestrrat-go/jwx/v3/jwa"

	"partnerbilling/api/auth"
	"partnerbilling/models"
)

func segment(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func TestAccessTokenClaims(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	parts := strings.Split(s.token(t, "billing:batches:read billing:customers:read"), ".")
	decode := func(part string) map[string]any {
		raw, err := base64.RawURLEncoding.DecodeString(part)
		must(t, err)
		var m map[string]any
		must(t, json.Unmarshal(raw, &m))
		return m
	}
	_, kid := s.signingKey(t)
	header, body := decode(parts[0]), decode(parts[1])
	if diff := cmp.Diff(map[string]any{"alg": "EdDSA", "typ": "at+jwt", "kid": kid}, header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if id, _ := body["jti"].(string); len(id) != 22 {
		t.Errorf("jti %q", id)
	}
	delete(body, "jti")
	now := float64(s.clock.now().Unix())
	want := map[string]any{
		"iss": issuerURL, "aud": issuerURL, "sub": s.client.ID.String(), "client_id": s.client.ID.String(),
		"org": s.client.OrganisationID.String(), "scope": "billing:customers:read billing:batches:read",
		"iat": now, "exp": now + 3600, "cred": models.FingerprintOf(s.secret),
	}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for range 2 { // the second time from memory
		got, err := s.auth.Authenticate(t.Context(), "bearer "+s.token(t, ""), from)
		must(t, err)
		want := auth.Principal{ClientID: s.client.ID, OrganisationID: s.client.OrganisationID,
			Scopes: models.PartnerScopes, Expires: got.Expires}
		if left := got.Expires.Sub(s.clock.now()); left <= 0 || left > auth.AccessTokenLifetime {
			t.Errorf("expires in %v", left)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("principal (-want +got):\n%s", diff)
		}
	}
	app, secret := s.newClient(t, models.OrganisationID{}, models.CustomerAppScopes)
	token := accessToken(t, s.ask(t, basic(app.ID.String(), secret), grant()))
	got, err := s.auth.Authenticate(t.Context(), "Bearer "+token, from)
	if err != nil || !got.OrganisationID.IsZero() ||
		!got.Has(models.ScopeSignupsWrite) || got.Has(models.ScopeBatchesRead) {
		t.Errorf("customer app: %+v, %v", got, err)
	}
}

func TestAuthorizationHeaders(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	token := s.token(t, "")
	tests := []struct {
		header string
		want   error
	}{
		{"", auth.ErrNoCredentials},
		{"Basic " + token, auth.ErrNoCredentials},
		{token, auth.ErrNoCredentials},
		{"Bearer", auth.ErrInvalidToken},
		{"Bearer ", auth.ErrInvalidToken},
		{"Bearer " + token + " " + token, auth.ErrInvalidToken},
		{"Bearer " + token + ", Bearer " + token, auth.ErrInvalidToken},
		{"Bearer garbage", auth.ErrInvalidToken},
		{"Bearer a.b.c", auth.ErrInvalidToken},
		{"Bearer ..", auth.ErrInvalidToken},
		{"Bearer \x00", auth.ErrInvalidToken},
		{"Bearer {\"payload\":\"e30\",\"signatures\":[]}", auth.ErrInvalidToken},
		{"Bearer " + strings.Repeat("a", 1<<20), auth.ErrInvalidToken},
		{"Bearer " + strings.Repeat("e30.", 3000), auth.ErrInvalidToken},
		{"Bearer " + token + ".", auth.ErrInvalidToken},
		{"Bearer " + token[:len(token)-4], auth.ErrInvalidToken},
		{"Bearer " + token[:strings.LastIndex(token, ".")+1], auth.ErrInvalidToken},
		{"BEARER " + token, nil},
		{"Bearer   " + token, nil},
	}
	for _, tt := range tests {
		if _, err := s.auth.Authenticate(t.Context(), tt.header, from); !errors.Is(err, tt.want) {
			t.Errorf("%.60q: error %v, want %v", tt.header, err, tt.want)
		}
	}
}

// Forged and altered tokens are refused.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	key, kid := s.signingKey(t)
	public, _ := key.Public().(ed25519.PublicKey)
	_, foreign, err := ed25519.GenerateKey(nil)
	must(t, err)
	pagination, err := s.keys.Current(t.Context(), models.KeySealedText)
	must(t, err)
	other, err := s.store.CreateOrganisation(t.Context(), "Hill Water")
	must(t, err)
	now := s.clock.now().Unix()
	id := s.client.ID.String()
	good := claims{
		"iss": issuerURL, "aud": issuerURL, "sub": id, "client_id": id, "org": s.client.OrganisationID.String(),
		"scope": "billing:batches:read", "iat": now, "exp": now + 3600, "jti": "x", "cred": models.FingerprintOf(s.secret),
	}
	header := func(pairs ...any) map[string]any {
		return claims{"typ": "at+jwt", "kid": kid}.with(pairs...)
	}
	eddsa := func(c claims, pairs ...any) string { return sign(t, c, jwa.EdDSA(), key, header(pairs...)) }
	valid := eddsa(good)
	parts := strings.Split(valid, ".")
	payload, err := json.Marshal(good.with("scope", "billing:batches:write"))
	must(t, err)
	none := segment(`{"alg":"none","typ":"at+jwt","kid":"`+kid+`"}`) + "." + parts[1] + "."
	tests := []struct {
		name, token string
		ok          bool
	}{
		{"good", valid, true},
		{"full media type", eddsa(good, "typ", "application/at+jwt"), true},
		{"upper-case type", eddsa(good, "typ", "AT+JWT"), true},
		{"several audiences", eddsa(good.with("aud", []string{"https://x.example", issuerURL})), true},
		{"issued within leeway", eddsa(good.with("iat", now+5, "nbf", now+5)), true},

		{"no type", eddsa(good, "typ", nil), false},
		{"another type", eddsa(good, "typ", "JWT"), false},
		{"no key id", eddsa(good, "kid", nil), false},
		{"unknown key id", eddsa(good, "kid", models.KeyID{1}.String()), false},
		{"malformed key id", eddsa(good, "kid", "../../etc/passwd"), false},
		{"key of another purpose", sign(t, good, jwa.EdDSA(),
			ed25519.NewKeyFromSeed(pagination.Secret), header("kid", pagination.ID.String())), false},
		{"foreign key", sign(t, good, jwa.EdDSA(), foreign, header()), false},
		{"URL of foreign keys in the header", sign(t, good, jwa.EdDSA(), foreign,
			header("jku", "https://evil.example/jwks")), false},
		{"critical header", eddsa(good, "crit", []string{"exp"}), false},
		{"none", none, false},
		{"None", strings.Replace(none, segment(`{"alg":"none"`)[:10], segment(`{"alg":"None"`)[:10], 1), false},
		{"none with the signature", none + parts[2], false},
		{"HMAC with the public key", sign(t, good, jwa.HS256(), []byte(public), header()), false},
		{"HMAC with the encoded public key", sign(t, good, jwa.HS256(),
			[]byte(base64.RawURLEncoding.EncodeToString(public)), header()), false},
		{"changed claims", parts[0] + "." + segment(string(payload)) + "." + parts[2], false},
		{"changed header", segment(`{"alg":"EdDSA","kid":"`+kid+`","typ":"at+jwt","x":1}`) +
			"." + parts[1] + "." + parts[2], false},
		{"empty signature", parts[0] + "." + parts[1] + ".", false},
		{"zero signature", parts[0] + "." + parts[1] + "." + segment(string(make([]byte, 64))), false},
		{"nested", eddsa(good) + "." + valid, false},
		{"other issuer", eddsa(good.with("iss", "https://evil.example")), false},
		{"issuer with a slash", eddsa(good.with("iss", issuerURL+"/")), false},
		{"no issuer", eddsa(good.with("iss", nil)), false},
		{"other audience", eddsa(good.with("aud", "https://x.example")), false},
		{"no audience", eddsa(good.with("aud", nil)), false},
		{"audience begins alike", eddsa(good.with("aud", issuerURL+".evil.example")), false},
		{"expired", eddsa(good.with("exp", now-60)), false},
		{"no expiry", eddsa(good.with("exp", nil)), false},
		{"expiry is text", eddsa(good.with("exp", "never")), false},
		{"not yet valid", eddsa(good.with("nbf", now+60)), false},
		{"issued in the future", eddsa(good.with("iat", now+60)), false},
		{"no subject", eddsa(good.with("sub", nil)), false},
		{"subject is not the client", eddsa(good.with("sub", models.ClientID{1}.String())), false},
		{"no client", eddsa(good.with("client_id", nil, "sub", nil)), false},
		{"unknown client", eddsa(good.with(
			"client_id", models.ClientID{1}.String(), "sub", models.ClientID{1}.String())), false},
		{"client is a number", eddsa(good.with("client_id", 7)), false},
		{"no organisation", eddsa(good.with("org", nil)), false},
		{"other organisation", eddsa(good.with("org", other.ID.String())), false},
		{"malformed organisation", eddsa(good.with("org", "org_x")), false},
		{"claims are a list", parts[0] + "." + segment(`[]`) + "." + parts[2], false},
		{"claims are a token", parts[0] + "." + segment(valid) + "." + parts[2], false},
	}
	for _, tt := range tests {
		for range 2 { // the second time, the cache must not change the result
			_, err := s.auth.Authenticate(t.Context(), "Bearer "+tt.token, from)
			if tt.ok && err != nil || !tt.ok && !errors.Is(err, auth.ErrInvalidToken) {
				t.Errorf("%s: error %v, want ok %v", tt.name, err, tt.ok)
			}
		}
	}
}

func TestTokenExpires(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	token := "Bearer " + s.token(t, "")
	for _, step := range []struct {
		advance time.Duration
		ok      bool
	}{
		{0, true}, {20 * time.Second, true}, {time.Hour - 21*time.Second, true}, {15 * time.Second, false},
	} {
		s.clock.advance(step.advance)
		if _, err := s.auth.Authenticate(t.Context(), token, from); (err == nil) != step.ok {
			t.Errorf("after %s more: %v, want ok %v", step.advance, err, step.ok)
		}
	}
}

func TestKeyRotation(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	old := s.token(t, "")
	_, oldKey := s.signingKey(t)
	newKey, err := s.store.RotateKey(t.Context(), s.ring, models.KeyAccessToken)
	must(t, err)
	must(t, s.keys.Refresh(t.Context()))
	if got := publishedKeys(t, s); !slices.Equal(got, []string{newKey.String(), oldKey}) {
		t.Errorf("before the new key is active the key set has %v", got)
	}
	if _, kid := s.signingKey(t); kid != oldKey {
		t.Error("signs with a key before it is active")
	}
	_, err = s.store.DB().ExecContext(t.Context(), "UPDATE service_keys SET active_at = 1 WHERE id = ?", newKey)
	must(t, err)
	_, err = s.store.DB().ExecContext(t.Context(), "UPDATE service_keys SET active_at = 0 WHERE id <> ?", newKey)
	must(t, err)
	must(t, s.keys.Refresh(t.Context()))
	if _, kid := s.signingKey(t); kid != newKey.String() {
		t.Error("does not sign with the new key")
	}
	for name, token := range map[string]string{"old": old, "new": s.token(t, "")} {
		if _, err := s.auth.Authenticate(t.Context(), "Bearer "+token, from); err != nil {
			t.Errorf("%s token: %v", name, err)
		}
	}

	var id models.KeyID
	must(t, id.UnmarshalText([]byte(oldKey)))
	must(t, s.store.RetireKey(t.Context(), s.ring, id))
	must(t, s.keys.Refresh(t.Context()))
	s.clock.advance(time.Minute) // the cached verification expires
	if _, err := s.auth.Authenticate(t.Context(), "Bearer "+old, from); !errors.Is(err, auth.ErrInvalidToken) {
		t.Errorf("token of a retired key: %v", err)
	}
	if got := publishedKeys(t, s); !slices.Equal(got, []string{newKey.String()}) {
		t.Errorf("the key set has %v", got)
	}
}

func publishedKeys(t *testing.T, s *server) []string {
	t.Helper()
	document, err := s.issuer.JWKS(t.Context())
	must(t, err)
	var set struct {
		Keys []struct{ Kid string }
	}
	must(t, json.Unmarshal(document, &set))
	var ids []string
	for _, key := range set.Keys {
		ids = append(ids, key.Kid)
	}
	return ids
}

func TestDisabledClient(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	token := "Bearer " + s.token(t, "")
	_, err := s.auth.Authenticate(t.Context(), token, from)
	must(t, err)
	must(t, s.store.DisableClient(t.Context(), s.client.ID))
	if answer := s.ask(t, basic(s.client.ID.String(), s.secret), grant()); answer.Status != 401 {
		t.Errorf("a new token after disabling: %d", answer.Status)
	}
	s.clock.advance(30 * time.Second)
	if _, err := s.auth.Authenticate(t.Context(), token, from); !errors.Is(err, auth.ErrInvalidToken) {
		t.Errorf("30 s after disabling: %v", err)
	}
	must(t, s.store.EnableClient(t.Context(), s.client.ID))
	s.clock.advance(30 * time.Second)
	if _, err := s.auth.Authenticate(t.Context(), token, from); err != nil {
		t.Errorf("after enabling: %v", err)
	}
	must(t, s.store.SetClientScopes(t.Context(), s.client.ID, []models.Scope{models.ScopeBatchesRead}))
	s.clock.advance(30 * time.Second)
	principal, err := s.auth.Authenticate(t.Context(), token, from)
	if err != nil || !slices.Equal(principal.Scopes, []models.Scope{models.ScopeBatchesRead}) {
		t.Errorf("after narrowing: %v, %v", principal.Scopes, err)
	}
}

func TestAuthenticateWithoutPostgres(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	token := "Bearer " + s.token(t, "")
	_, err := s.auth.Authenticate(t.Context(), token, from)
	must(t, err)
	must(t, s.store.Close())
	s.clock.advance(20 * time.Second)
	if _, err := s.auth.Authenticate(t.Context(), token, from); err != nil {
		t.Errorf("20 s without Postgres: %v", err)
	}
	s.clock.advance(20 * time.Second)
	if _, err := s.auth.Authenticate(t.Context(), token, from); err == nil || errors.Is(err, auth.ErrInvalidToken) {
		t.Errorf("40 s without Postgres: %v", err)
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	s := newServer(b)
	token := "Bearer " + s.token(b, "")
	for b.Loop() {
		if _, err := s.auth.Authenticate(b.Context(), token, from); err != nil {
			b.Fatal(err)
		}
	}
}
