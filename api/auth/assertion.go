package auth

import (
	"context"
	"crypto"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"

	"partnerbilling/models"
)

// maxAssertionLifetime is the maximum time from now until a client assertion's exp. A client
// assertion is a JWT with which a client authenticates instead of a secret (private_key_jwt).
const maxAssertionLifetime = 5 * time.Minute

// maxAssertionID is the maximum length of an assertion's jti, in bytes.
const maxAssertionID = 256

// CheckClientJWKS returns an error unless raw is a JSON Web Key Set that a client may use for
// private_key_jwt. The set has 1 to 16 public keys, each Ed25519, P-256 or RSA of 2048 to 8192
// bits. A single JSON Web Key counts as a set of one key.
func CheckClientJWKS(raw json.RawMessage) error {
	set, err := publicKeys(raw)
	if err != nil {
		return fmt.Errorf("auth: client keys: %w", err)
	}
	if set.Len() < 1 || set.Len() > 16 {
		return errors.New("auth: client keys: the set must have 1 to 16 keys")
	}
	return nil
}

// checkAssertion verifies a client assertion (RFC 7523 §3) that was sent from the address, and
// returns its client. An assertion can be used once.
func (i *Issuer) checkAssertion(ctx context.Context, attempt credentials, address netip.Addr) (authenticated, error) {
	assertion, err := parseSigned(attempt.assertion)
	if err != nil {
		return authenticated{}, invalidClient(err)
	}
	if err := i.checkAssertionClaims(&assertion, attempt.clientID); err != nil {
		return authenticated{}, invalidClient(err)
	}
	known, err := i.lookUp(ctx, assertion.text(jwt.SubjectKey))
	if err != nil {
		return authenticated{}, err
	}
	fingerprint, err := i.verifyAssertion(&assertion, known.JWKS)
	if err != nil {
		return authenticated{}, invalidClient(err)
	}
	if err := checkMayAct(&known.Client, address); err != nil {
		return authenticated{}, invalidClient(err)
	}
	expires, _ := assertion.claims.Expiration()
	// The jti is kept past exp, so that clock skew cannot allow a second use.
	err = i.store.UseAssertion(ctx, known.ID, assertion.text(jwt.JwtIDKey), models.MillisOf(expires).Add(time.Hour))
	if errors.Is(err, models.ErrAssertionUsed) {
		return authenticated{}, invalidClient(err)
	}
	return authenticated{known, fingerprint}, err
}

// checkAssertionClaims checks everything but the signature, nbf and iat: the algorithm, the type,
// the client, the jti, the audience, and that exp is near. verifyAssertion checks the rest, and
// that exp is not over. clientID is "" if the request names no client.
func (i *Issuer) checkAssertionClaims(assertion *signed, clientID string) error {
	subject, id := assertion.text(jwt.SubjectKey), assertion.text(jwt.JwtIDKey)
	expires, ok := assertion.claims.Expiration()
	switch {
	case !slices.Contains(asymmetric, assertion.algorithm):
		return fmt.Errorf("algorithm %q", assertion.algorithm)
	case !slices.Contains([]string{"", "jwt", "client-authentication+jwt"}, assertion.typ):
		return fmt.Errorf("typ %q", assertion.typ)
	case subject == "" || subject != assertion.text(jwt.IssuerKey):
		return errors.New("iss and sub are not the same client")
	case clientID != "" && clientID != subject:
		return errors.New("client_id is not the client of the assertion")
	case id == "" || len(id) > maxAssertionID:
		return errors.New("jti must have 1 to 256 bytes")
	case !ok || expires.After(i.now().Add(maxAssertionLifetime+leeway)):
		return errors.New("exp is missing or too far ahead")
	}
	audience, _ := assertion.claims.Audience()
	if !slices.Contains(audience, i.url) && !slices.Contains(audience, i.url+TokenPath) {
		return errors.New("wrong audience")
	}
	return nil
}

// verifyAssertion verifies the signature, exp, nbf and iat. It uses the client's key that the
// assertion's key id names. Without a key id it tries every key that suits the algorithm. It
// returns the fingerprint of the key that made the signature.
func (i *Issuer) verifyAssertion(assertion *signed, jwks json.RawMessage) (string, error) {
	if len(jwks) == 0 {
		return "", errors.New("unknown client, or client without keys")
	}
	set, err := jwk.Parse(jwks)
	if err != nil {
		return "", errors.New("the client's keys are malformed")
	}
	err = errors.New("no key of the client matches")
	for n := range set.Len() {
		key, _ := set.Key(n)
		id, _ := key.KeyID()
		if assertion.keyID != "" && assertion.keyID != id || !fits(key, assertion.algorithm) || !usable(key) {
			continue
		}
		err = assertion.verify(key, jwt.WithClock(jwt.ClockFunc(i.now)), jwt.WithAcceptableSkew(leeway))
		if err == nil {
			return keyFingerprint(key)
		}
	}
	return "", err
}

// KeyFingerprints returns the fingerprints of a client's public keys: the first 16 hex digits of
// their thumbprints (RFC 7638). It returns nil if jwks is empty.
func KeyFingerprints(jwks json.RawMessage) ([]string, error) {
	if len(jwks) == 0 {
		return nil, nil
	}
	set, err := jwk.Parse(jwks)
	if err != nil {
		return nil, fmt.Errorf("auth: client keys: %w", err)
	}
	all := make([]string, set.Len())
	for n := range set.Len() {
		key, _ := set.Key(n)
		if all[n], err = keyFingerprint(key); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func keyFingerprint(key jwk.Key) (string, error) {
	thumbprint, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("auth: client keys: %w", err)
	}
	return hex.EncodeToString(thumbprint[:8]), nil
}
