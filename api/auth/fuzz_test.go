package auth_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"partnerbilling/api/auth"
)

// Tokens that the service has not signed are refused, always with one of two errors.
func FuzzAuthenticate(f *testing.F) {
	s := newServer(f)
	valid := s.token(f, "")
	parts := strings.Split(valid, ".")
	for _, seed := range []string{
		"", "Bearer", "Bearer ", "Bearer a.b.c", "Basic YTpi", "Bearer " + valid + ".",
		"Bearer " + parts[0] + ".e30." + parts[2],
		"Bearer " + segment(`{"alg":"none"}`) + ".e30.",
		"Bearer " + segment(`{"alg":"EdDSA","crit":["b64"],"b64":false}`) + ".e30." + parts[2],
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		_, err := s.auth.Authenticate(t.Context(), header, from)
		if !errors.Is(err, auth.ErrInvalidToken) && !errors.Is(err, auth.ErrNoCredentials) {
			t.Errorf("%q: %v", header, err)
		}
	})
}

// No form gets a token without the secret or causes a server error.
func FuzzToken(f *testing.F) {
	s := newServer(f)
	must(f, s.store.SetClientJWKS(f.Context(), s.client.ID, keySet(f, "ed")))
	id := s.client.ID.String()
	f.Add("", "grant_type=client_credentials&client_id="+id+"&client_secret=x")
	f.Add(basic(id, "x"), "grant_type=client_credentials")
	f.Add("Basic "+strings.Repeat("=", 9), "grant_type=client_credentials&scope=")
	f.Add("", "grant_type=client_credentials&client_assertion_type="+url.QueryEscape(assertionType)+
		"&client_assertion="+
		segment(`{"alg":"EdDSA"}`)+"."+
		segment(`{"iss":"`+id+`","sub":"`+id+`","aud":"`+issuerURL+`","jti":"1","exp":9999999999}`)+".AAAA")
	f.Fuzz(func(t *testing.T, authorization, body string) {
		answer := s.issuer.Token(t.Context(), auth.TokenRequest{
			ContentType: "application/x-www-form-urlencoded", Authorization: authorization, Body: []byte(body),
		})
		if answer.Status == http.StatusOK || answer.Status >= 500 {
			t.Errorf("%q %q: %d (%v)", authorization, body, answer.Status, answer.Err)
		}
	})
}
