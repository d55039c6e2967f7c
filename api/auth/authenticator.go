package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/netip"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/lestrrat-go/jwx/v3/jwt"

	"partnerbilling/models"
)

// The lifetime and size of the cache of verified tokens.
const (
	tokenFreshFor  = 30 * time.Second
	tokenCacheSize = 10_000
)

// Authenticator verifies the bearer tokens of requests. It is safe for concurrent use.
type Authenticator struct {
	issuer, audience string
	outside          bool // tokens of an outside issuer, which have no organisation
	keys             keySource
	clients          *clientCache
	verified         *lru.Cache[[sha256.Size]byte, verifiedToken]
	now              func() time.Time
}

type verifiedToken struct {
	accessToken
	at time.Time // when it was verified
}

// OutsideIssuer is an outside authorisation server that a deployment trusts instead of its own.
type OutsideIssuer struct {
	URL      string // the exact iss claim
	JWKSURL  string // where the issuer publishes its public keys
	Audience string // the required audience
}

// NewAuthenticator returns an Authenticator for the tokens of an Issuer with the same URL and
// audience.
func NewAuthenticator(store *models.Store, keys *models.Keys, cfg Config) *Authenticator {
	cfg = cfg.withDefaults()
	return newAuthenticator(store, ownKeys{keys}, cfg.URL, cfg.Audience, cfg.Now)
}

// NewOutsideAuthenticator returns an Authenticator for the tokens of an outside issuer. Their
// client_id (else azp, else sub) must be the id of a client of this service. The client determines
// the organisation and limits the scopes.
func NewOutsideAuthenticator(store *models.Store, issuer OutsideIssuer, now func() time.Time) *Authenticator {
	a := newAuthenticator(store, newOutsideKeys(issuer.JWKSURL, now), issuer.URL, issuer.Audience, now)
	a.outside = true
	return a
}

func newAuthenticator(
	store *models.Store, keys keySource, issuer, audience string, now func() time.Time,
) *Authenticator {
	verified, err := lru.New[[sha256.Size]byte, verifiedToken](tokenCacheSize)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &Authenticator{
		issuer: issuer, audience: audience, keys: keys, now: now,
		clients: newClientCache(store, now), verified: verified,
	}
}

// Authenticate verifies the bearer token of an Authorization header, and returns its client. It
// checks that the client is enabled and may call from the address. The client must also still have
// the credential that obtained the token, unless an outside issuer issued it.
//
// Authenticate returns ErrNoCredentials or ErrInvalidToken. It returns models.ErrUnavailable if
// Postgres does not answer and the cache has no recent copy of the client, or only a copy without
// the token's credential. It returns the same error if an outside issuer's keys are unavailable.
func (a *Authenticator) Authenticate(
	ctx context.Context, authorization string, from netip.Addr,
) (Principal, error) {
	raw, err := bearerToken(authorization)
	if err != nil {
		return Principal{}, err
	}
	token, err := a.check(ctx, raw)
	if err != nil {
		return Principal{}, err
	}
	client, err := a.clients.get(ctx, token.client)
	if err == nil && !a.outside && !slices.Contains(client.credentials, token.credential) {
		// The credential may be newer than the cached client.
		client, err = a.clients.getSince(ctx, token.client, token.issued.Add(leeway))
	}
	switch {
	case errors.Is(err, models.ErrNotFound):
		return Principal{}, invalid("unknown client")
	case err != nil:
		return Principal{}, err
	}
	if err := checkMayAct(&client.Client, from); err != nil {
		return Principal{}, invalid("%w", err)
	}
	switch {
	case !a.outside && !slices.Contains(client.credentials, token.credential):
		return Principal{}, invalid("client %s has lost the credential of the token", client.ID)
	case !a.outside && client.OrganisationID != token.organisation:
		return Principal{}, invalid("client %s is not of this organisation", client.ID)
	}
	scopes := slices.DeleteFunc(slices.Clone(token.scopes), func(s models.Scope) bool {
		return !slices.Contains(client.Scopes, s)
	})
	return Principal{
		ClientID: client.ID, OrganisationID: client.OrganisationID, Scopes: scopes, Expires: token.expires,
	}, nil
}

// check verifies a token, or returns it from the cache.
func (a *Authenticator) check(ctx context.Context, raw string) (accessToken, error) {
	digest, now := sha256.Sum256([]byte(raw)), a.now()
	known, ok := a.verified.Get(digest)
	if ok && now.Sub(known.at) < tokenFreshFor && now.Before(known.expires) && !now.Before(known.notBefore) {
		return known.accessToken, nil
	}
	token, err := a.verify(ctx, raw)
	if err != nil {
		return accessToken{}, err
	}
	a.verified.Add(digest, verifiedToken{token, now})
	return token, nil
}

// verify verifies a token without the cache: its type, algorithm, issuer, signature and claims.
func (a *Authenticator) verify(ctx context.Context, raw string) (accessToken, error) {
	s, err := parseSigned(raw)
	if err != nil {
		return accessToken{}, invalid("%w", err)
	}
	if !a.acceptsType(s.typ) {
		return accessToken{}, invalid("typ %q", s.typ)
	}
	if !slices.Contains(asymmetric, s.algorithm) {
		return accessToken{}, invalid("algorithm %q", s.algorithm)
	}
	if s.text(jwt.IssuerKey) != a.issuer { // before publicKey: foreign tokens must not cause a fetch
		return accessToken{}, invalid("wrong issuer")
	}
	key, err := a.keys.publicKey(ctx, s.keyID, s.algorithm)
	if err != nil {
		return accessToken{}, err
	}
	err = s.verify(key,
		jwt.WithClock(jwt.ClockFunc(a.now)), jwt.WithAcceptableSkew(leeway),
		jwt.WithIssuer(a.issuer), jwt.WithAudience(a.audience),
		jwt.WithRequiredClaim(jwt.ExpirationKey), jwt.WithRequiredClaim(jwt.SubjectKey))
	if err != nil {
		return accessToken{}, invalid("%w", err)
	}
	return a.read(&s)
}

// acceptsType reports whether an access token may have the header typ, given in lower case. Outside
// issuers often set it to "JWT" or omit it. For their tokens, the audience distinguishes access
// tokens from ID tokens.
func (a *Authenticator) acceptsType(typ string) bool {
	return typ == accessTokenType || a.outside && (typ == "jwt" || typ == "")
}

// read returns the claims of a token whose signature is verified. It refuses a malformed client or
// organisation.
func (a *Authenticator) read(s *signed) (accessToken, error) {
	token := accessToken{scopes: splitScopes(s.text(claimScope)), credential: s.text(claimCredential)}
	token.expires, _ = s.claims.Expiration()
	token.issued, _ = s.claims.IssuedAt()
	if at, ok := s.claims.NotBefore(); ok {
		token.notBefore = at.Add(-leeway)
	}
	if a.outside {
		err := a.readOutside(s, &token)
		return token, err
	}
	err := token.client.UnmarshalText([]byte(s.text(claimClientID)))
	if err != nil || s.text(jwt.SubjectKey) != token.client.String() {
		return accessToken{}, invalid("malformed client_id")
	}
	organisation := s.text(claimOrganisation)
	if organisation != "" && token.organisation.UnmarshalText([]byte(organisation)) != nil {
		return accessToken{}, invalid("malformed org")
	}
	return token, nil
}

// readOutside reads the client and the scopes of an outside issuer's token. Some issuers list the
// scopes in the claim scp instead of scope.
func (a *Authenticator) readOutside(s *signed, token *accessToken) error {
	var list []any
	if s.claims.Get("scp", &list) == nil && len(token.scopes) == 0 {
		for _, element := range list {
			scope, _ := element.(string)
			token.scopes = append(token.scopes, models.Scope(scope))
		}
	}
	for _, claim := range []string{claimClientID, "azp", jwt.SubjectKey} {
		if text := s.text(claim); text != "" {
			if token.client.UnmarshalText([]byte(text)) != nil {
				return invalid("malformed %s", claim)
			}
			return nil
		}
	}
	return invalid("no client")
}
