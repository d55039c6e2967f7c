package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jws"
	"github.com/lestrrat-go/jwx/v3/jwt"

	"partnerbilling/models"
)

// AccessTokenLifetime is how long an access token is valid.
const AccessTokenLifetime = time.Hour

// accessTokenType is the typ header of an RFC 9068 access token.
const accessTokenType = "at+jwt"

// Claims of access tokens beyond RFC 7519.
const (
	claimClientID     = "client_id"
	claimOrganisation = "org" // absent for clients of the customer app
	claimScope        = "scope"
	claimCredential   = "cred" // fingerprint of the secret or key that obtained the token
)

// accessToken holds the claims of a verified access token.
type accessToken struct {
	client       models.ClientID
	organisation models.OrganisationID // zero: a client of the customer app, or a token of an outside issuer
	scopes       []models.Scope
	credential   string // fingerprint; "" in tokens of an outside issuer
	issued       time.Time
	notBefore    time.Time // the claim nbf less the leeway; zero without the claim
	expires      time.Time
}

// mint returns an access token for the client, signed with the current key. credential is the
// fingerprint of the secret or key that the client has authenticated with. Once the client loses
// that credential, the token is refused.
func (i *Issuer) mint(
	ctx context.Context, client models.Client, credential string, scopes []models.Scope,
) (string, error) {
	key, err := i.keys.Current(ctx, models.KeyAccessToken)
	if err != nil {
		return "", err
	}
	now := i.now().Truncate(time.Second)
	claims := jwt.NewBuilder().
		Issuer(i.url).Audience([]string{i.audience}).Subject(client.ID.String()).
		IssuedAt(now).Expiration(now.Add(AccessTokenLifetime)).JwtID(randomID()).
		Claim(claimClientID, client.ID.String()).Claim(claimScope, joinScopes(scopes)).
		Claim(claimCredential, credential)
	if !client.OrganisationID.IsZero() {
		claims.Claim(claimOrganisation, client.OrganisationID.String())
	}
	token, err := claims.Build()
	if err != nil {
		return "", fmt.Errorf("auth: build access token: %w", err)
	}
	token.Options().Enable(jwt.FlattenAudience)
	header := jws.NewHeaders()
	err = errors.Join(header.Set(jws.TypeKey, accessTokenType), header.Set(jws.KeyIDKey, key.ID.String()))
	if err != nil {
		return "", fmt.Errorf("auth: build access token: %w", err)
	}
	signature := jwt.WithKey(jwa.EdDSA(), ed25519.NewKeyFromSeed(key.Secret), jws.WithProtectedHeaders(header))
	raw, err := jwt.Sign(token, signature)
	if err != nil {
		return "", fmt.Errorf("auth: sign access token: %w", err)
	}
	return string(raw), nil
}

// randomID returns 128 random bits as text.
func randomID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// joinScopes returns the wire form of a list of scopes (RFC 6749 §3.3).
func joinScopes(scopes []models.Scope) string {
	texts := make([]string, len(scopes))
	for i, scope := range scopes {
		texts[i] = string(scope)
	}
	return strings.Join(texts, " ")
}

// splitScopes parses the wire form of a list of scopes. It keeps unknown scopes.
func splitScopes(text string) []models.Scope {
	var scopes []models.Scope
	for _, s := range strings.Fields(text) {
		scopes = append(scopes, models.Scope(s))
	}
	return scopes
}
