package auth_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/auth"
	"partnerbilling/models"
)

// Bodies of error responses.
var (
	invalidClient = failure("invalid_client", "client authentication failed")
	invalidScope  = failure("invalid_scope", "scope must be a space-separated list of scopes granted to the client")
	twoMethods    = failure("invalid_request", "more than one method of client authentication")
	malformedBody = failure("invalid_request", "the body is malformed")
	notForm       = failure("invalid_request", "the body must be application/x-www-form-urlencoded")
	repeated      = failure("invalid_request", "a parameter occurs more than once")
)

// failure returns the body of an error response.
func failure(code, description string) string {
	return fmt.Sprintf(`{"error":%q,"error_description":%q}`, code, description)
}

func raw(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }

func TestTokenEndpoint(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id, secret := s.client.ID.String(), s.secret
	disabled, disabledSecret := s.newClient(t, s.client.OrganisationID, models.PartnerScopes)
	must(t, s.store.DisableClient(t.Context(), disabled.ID))
	all := "billing:customers:read billing:customers:write billing:batches:read billing:batches:write " +
		"billing:movements:read " +
		"checkout:payment-intents:read checkout:payment-intents:write checkout:webhooks:read checkout:webhooks:write"
	tests := []struct {
		name, authorization string
		form                url.Values
		status              int
		want                string // the body; of a success the scope
	}{
		{"basic", basic(id, secret), grant(), 200, all},
		{"lower-case scheme", strings.Replace(basic(id, secret), "Basic", "basic", 1), grant(), 200, all},
		{"basic with the same client_id", basic(id, secret), grant("client_id", id), 200, all},
		{"basic with escapes", raw(strings.ReplaceAll(id, "-", "%2D") + ":" + strings.ReplaceAll(secret, "_", "%5F")),
			grant(), 200, all},
		{"post", "", grant("client_id", id, "client_secret", secret), 200, all},
		{"unknown parameters", basic(id, secret), grant("resource", "x"), 200, all},
		{"empty scope", basic(id, secret), grant("scope", ""), 200, all},
		{"narrower", basic(id, secret), grant("scope", "billing:batches:write billing:batches:read"), 200,
			"billing:batches:read billing:batches:write"},
		{"many spaces", basic(id, secret), grant("scope", " billing:batches:read  billing:batches:write "), 200,
			"billing:batches:read billing:batches:write"},
		{"scope twice", basic(id, secret), grant("scope", "billing:batches:read billing:batches:read"), 200,
			"billing:batches:read"},

		{"unknown scope", basic(id, secret), grant("scope", "billing:batches:read billing:everything"), 400,
			invalidScope},
		{"scope of others", basic(id, secret), grant("scope", "customer-app:signups:write"), 400, invalidScope},
		{"tab", basic(id, secret), grant("scope", "billing:batches:read\tbilling:batches:write"), 400, invalidScope},
		{"scope is a space", basic(id, secret), grant("scope", " "), 400, invalidScope},
		{"scope in capitals", basic(id, secret), grant("scope", "BILLING:batches:read"), 400, invalidScope},

		{"no grant type", basic(id, secret), url.Values{}, 400, failure("invalid_request", "grant_type is missing")},
		{"other grant type", basic(id, secret), url.Values{"grant_type": {"password"}}, 400,
			failure("unsupported_grant_type", "grant_type must be client_credentials")},
		{"grant type twice", basic(id, secret), grant("grant_type", "client_credentials"), 400, repeated},
		{"unknown parameter twice", basic(id, secret), grant("x", "1", "x", "2"), 400, repeated},

		{"nothing", "", grant(), 401, invalidClient},
		{"client_id alone", "", grant("client_id", id), 401, invalidClient},
		{"wrong secret", basic(id, secret+"x"), grant(), 401, invalidClient},
		{"wrong secret in the body", "", grant("client_id", id, "client_secret", "x"), 401, invalidClient},
		{"unknown client", basic(models.ClientID{1}.String(), secret), grant(), 401, invalidClient},
		{"malformed client", basic("admin", secret), grant(), 401, invalidClient},
		{"disabled client", basic(disabled.ID.String(), disabledSecret), grant(), 401, invalidClient},
		{"no colon", raw(id), grant(), 401, invalidClient},
		{"empty secret", raw(id + ":"), grant(), 401, invalidClient},
		{"not base64", "Basic %%%", grant(), 401, invalidClient},
		{"bad escape", raw(id + ":%zz"), grant(), 401, invalidClient},
		{"bearer", "Bearer " + secret, grant(), 401, invalidClient},

		{"basic and post", basic(id, secret), grant("client_id", id, "client_secret", secret), 400, twoMethods},
		{"basic and assertion", basic(id, secret), grant("client_assertion", "x"), 400, twoMethods},
		{"post and assertion", "", grant("client_id", id, "client_secret", secret, "client_assertion", "x"), 400,
			twoMethods},
		{"post without client_id", "", grant("client_secret", secret), 400,
			failure("invalid_request", "client_id is missing")},
		{"basic with another client_id", basic(id, secret), grant("client_id", disabled.ID.String()), 400,
			failure("invalid_request", "client_id differs from the authenticated client")},
		{"assertion of another type", "", grant("client_assertion", "x", "client_assertion_type", "saml"), 400,
			failure("invalid_request",
				"client_assertion_type must be urn:ietf:params:oauth:client-assertion-type:jwt-bearer")},
		{"assertion type alone", "", grant("client_assertion_type", assertionType), 400,
			failure("invalid_request", "client_assertion is missing")},
	}
	for _, tt := range tests {
		answer := s.ask(t, tt.authorization, tt.form)
		if answer.Status != tt.status {
			t.Errorf("%s: status %d, want %d (%s)", tt.name, answer.Status, tt.status, answer.Body)
			continue
		}
		checkTokenHeaders(t, tt.name, answer)
		if answer.Status != http.StatusOK {
			if string(answer.Body) != tt.want || answer.Err == nil {
				t.Errorf("%s: %s, want %s (%v)", tt.name, answer.Body, tt.want, answer.Err)
			}
			continue
		}
		want := `{"access_token":"` + accessToken(t, answer) +
			`","token_type":"Bearer","expires_in":3600,"scope":"` + tt.want + `"}`
		if diff := cmp.Diff(want, string(answer.Body)); diff != "" || answer.Err != nil {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func checkTokenHeaders(t *testing.T, name string, answer auth.TokenResponse) {
	t.Helper()
	want := http.Header{
		"Content-Type": {"application/json;charset=UTF-8"}, "Cache-Control": {"no-store"}, "Pragma": {"no-cache"},
	}
	if answer.Status == http.StatusUnauthorized {
		want.Set("WWW-Authenticate", `Basic realm="svc", charset="UTF-8"`)
	}
	if diff := cmp.Diff(want, answer.Header); diff != "" {
		t.Errorf("%s: headers (-want +got):\n%s", name, diff)
	}
}

func TestTokenEndpointForm(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const form = "application/x-www-form-urlencoded"
	tests := []struct {
		name, contentType, body string
		status                  int
		want                    string
	}{
		{"with a charset", form + "; charset=UTF-8", "grant_type=client_credentials", 200, ""},
		{"upper case", "Application/X-WWW-Form-Urlencoded", "grant_type=client_credentials", 200, ""},
		{"no type", "", "grant_type=client_credentials", 400, notForm},
		{"two types", form + ", " + form, "grant_type=client_credentials", 400, notForm},
		{"JSON", "application/json", `{"grant_type":"client_credentials"}`, 400, notForm},
		{"multipart", "multipart/form-data; boundary=x", "--x--", 400, notForm},
		{"bad escape", form, "grant_type=%zz", 400, malformedBody},
		{"semicolon", form, "grant_type=client_credentials;scope=x", 400, malformedBody},
		{"empty", form, "", 400, failure("invalid_request", "grant_type is missing")},
		{"long", form, "grant_type=client_credentials&x=" + strings.Repeat("a", 20<<10), 413,
			failure("invalid_request", "the body is too long")},
	}
	for _, tt := range tests {
		answer := s.issuer.Token(t.Context(), auth.TokenRequest{
			ContentType: tt.contentType, Authorization: basic(s.client.ID.String(), s.secret), Body: []byte(tt.body),
		})
		if answer.Status != tt.status || tt.want != "" && string(answer.Body) != tt.want {
			t.Errorf("%s: %d %s", tt.name, answer.Status, answer.Body)
		}
	}
}

// The log tells an unknown client from a client's wrong secret. The answer does not.
func TestRefusedSecretNamesTheClientInTheLog(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const unknown = "cli_01932c07-0000-7000-8000-000000000001"
	id := s.client.ID.String()
	wrong, none := s.ask(t, basic(id, "wrong"), grant()), s.ask(t, basic(unknown, "wrong"), grant())
	if string(wrong.Body) != string(none.Body) || wrong.Status != none.Status {
		t.Errorf("the answers differ: %d %s, %d %s", wrong.Status, wrong.Body, none.Status, none.Body)
	}
	if !strings.Contains(wrong.Err.Error(), "wrong secret of client "+id) {
		t.Errorf("a wrong secret: %v", wrong.Err)
	}
	if !strings.Contains(none.Err.Error(), "unknown client") {
		t.Errorf("an unknown client: %v", none.Err)
	}
}

func TestTwoSecrets(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	second, err := s.store.AddClientSecret(t.Context(), s.client.ID)
	must(t, err)
	for _, secret := range []string{s.secret, second} {
		accessToken(t, s.ask(t, basic(s.client.ID.String(), secret), grant()))
	}
}

func TestFailuresSlowDownAndNeverLockOut(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.client.ID.String()
	statuses := map[int]int{}
	var last auth.TokenResponse
	for range 30 {
		last = s.ask(t, basic(id, "wrong"), grant())
		statuses[last.Status]++
	}
	if statuses[401] != 10 || statuses[429] != 20 {
		t.Errorf("30 failures: %v", statuses)
	}
	want := failure("temporarily_unavailable", "too many failed attempts; try again later")
	if string(last.Body) != want || last.Header.Get("Retry-After") != "2" || last.Header.Get("WWW-Authenticate") != "" {
		t.Errorf("slowed down: %s %v", last.Body, last.Header)
	}
	accessToken(t, s.ask(t, basic(id, s.secret), grant()))
	s.clock.advance(2 * time.Second)
	for _, want := range []int{401, 429} {
		if answer := s.ask(t, basic(id, "wrong"), grant()); answer.Status != want {
			t.Errorf("2 s later: %d, want %d", answer.Status, want)
		}
	}

	// The address is limited across clients.
	seen := 0
	for range 60 {
		id := models.ClientID{1, byte(seen)}.String()
		if s.ask(t, basic(id, "wrong"), grant()).Status == http.StatusTooManyRequests {
			break
		}
		seen++
	}
	if seen >= 60 {
		t.Error("failures of an address under other client ids are not limited")
	}
}

// A client, and the clients of an address together, get a bounded number of tokens, with or without
// a limiter in Redis. Failed attempts use up no bound.
func TestIssuanceIsBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	second, secondSecret := s.newClient(t, s.client.OrganisationID, models.PartnerScopes)
	s.issuer = auth.NewIssuer(s.store, s.keys, auth.Config{
		URL: issuerURL, Now: s.clock.now,
		ClientTokens:  auth.Bound{Every: 1500 * time.Millisecond, Burst: 3},
		AddressTokens: auth.Bound{Every: time.Second, Burst: 5},
	})
	statuses := func(id models.ClientID, secret string, n int) (all []int) {
		for range n {
			all = append(all, s.ask(t, basic(id.String(), secret), grant()).Status)
		}
		return all
	}
	must(t, equal([]int{401, 401, 401, 401}, statuses(s.client.ID, "wrong", 4)))
	must(t, equal([]int{200, 200, 200, 429}, statuses(s.client.ID, s.secret, 4)))
	answer := s.ask(t, basic(s.client.ID.String(), s.secret), grant())
	if want := failure("temporarily_unavailable",
		"too many token requests; reuse a token until it expires"); string(answer.Body) != want ||
		answer.Header.Get("Retry-After") != "2" {
		t.Errorf("%s %v", answer.Body, answer.Header)
	}
	must(t, equal([]int{429, 429}, statuses(second.ID, secondSecret, 2))) // the refusals counted for the address
	s.clock.advance(2 * time.Second)
	must(t, equal([]int{200, 200, 429}, statuses(second.ID, secondSecret, 3)))
}

func equal(want, got []int) error {
	if slices.Equal(want, got) {
		return nil
	}
	return fmt.Errorf("statuses %v, want %v", got, want)
}

func TestTokenEndpointWithoutPostgres(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	must(t, s.store.Close())
	if answer := s.ask(t, basic(s.client.ID.String(), s.secret), grant()); answer.Status < 500 || answer.Err == nil {
		t.Errorf("%d %s", answer.Status, answer.Body)
	} else if strings.Contains(string(answer.Body), "sql") {
		t.Errorf("%s reveals internals", answer.Body)
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	issuer := auth.NewIssuer(nil, nil, auth.Config{URL: issuerURL})
	got, err := issuer.Metadata()
	must(t, err)
	want := `{"issuer":"https://billing.example",` +
		`"token_endpoint":"https://billing.example/oauth2/token",` +
		`"jwks_uri":"https://billing.example/.well-known/jwks.json",` +
		`"scopes_supported":["billing:customers:read","billing:customers:write",` +
		`"billing:batches:read","billing:batches:write",` +
		`"billing:movements:read",` +
		`"checkout:payment-intents:read","checkout:payment-intents:write",` +
		`"checkout:webhooks:read","checkout:webhooks:write",` +
		`"customer-app:signups:write","customer-app:payments:write"],` +
		`"grant_types_supported":["client_credentials"],` +
		`"token_endpoint_auth_methods_supported":["client_secret_basic","client_secret_post","private_key_jwt"],` +
		`"token_endpoint_auth_signing_alg_values_supported":["EdDSA","ES256","RS256","PS256"],` +
		`"service_documentation":"https://billing.example/docs"}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

func TestJWKSContainsNoPrivateKeys(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	document, err := s.issuer.JWKS(t.Context())
	must(t, err)
	var set struct{ Keys []map[string]any }
	must(t, json.Unmarshal(document, &set))
	if len(set.Keys) != 1 {
		t.Fatalf("%s", document)
	}
	_, kid := s.signingKey(t)
	key := set.Keys[0]
	if x, _ := key["x"].(string); len(x) != 43 {
		t.Errorf("x is %q", x)
	}
	delete(key, "x")
	want := map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": kid, "use": "sig", "alg": "EdDSA"}
	if diff := cmp.Diff(want, key); diff != "" {
		t.Errorf("key (-want +got):\n%s", diff)
	}
}
