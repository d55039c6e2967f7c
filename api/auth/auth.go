// Package auth issues and verifies access tokens. It provides a token endpoint for the client
// credentials grant (RFC 6749 §4.4), client authentication, access tokens of RFC 9068, the key set,
// and the metadata document. It can verify the tokens of an outside issuer instead.
package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"partnerbilling/models"
)

// Principal is the client on whose behalf a request acts.
type Principal struct {
	ClientID       models.ClientID
	OrganisationID models.OrganisationID // zero: a client of the customer app
	Scopes         []models.Scope        // the token's scopes that are still granted to the client
	Expires        time.Time             // when the token expires
}

// Has reports whether the principal has a scope.
func (p Principal) Has(scope models.Scope) bool { return slices.Contains(p.Scopes, scope) }

var (
	// ErrNoCredentials reports a request without an Authorization header of the scheme Bearer.
	ErrNoCredentials = errors.New("auth: no credentials")
	// ErrInvalidToken reports a bearer token that is empty, malformed, expired, forged, for another
	// audience, or of a client that may not use it. Errors that wrap it add a reason for the logs,
	// which clients must not see.
	ErrInvalidToken = errors.New("auth: invalid token")
)

// maxTokenSize is the maximum length of a token or assertion, in bytes.
const maxTokenSize = 8 << 10

// leeway is the tolerated clock skew when exp, nbf and iat are checked.
const leeway = 10 * time.Second

// bearerToken returns the bearer token of an Authorization header (RFC 6750 §2.1). It returns
// ErrNoCredentials without the scheme Bearer, and ErrInvalidToken for an empty or oversized token.
func bearerToken(authorization string) (string, error) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(authorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", ErrNoCredentials
	}
	token = strings.TrimLeft(token, " ")
	if token == "" || len(token) > maxTokenSize {
		return "", invalid("empty or oversized bearer token")
	}
	return token, nil
}

// invalid returns an error that wraps ErrInvalidToken and adds a reason for the logs.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalidToken, fmt.Errorf(format, args...))
}
