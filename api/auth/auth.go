// Package auth issues and checks access tokens: the token endpoint of RFC 6749 §4.4 with its client authentication
// methods, RFC 9068 JWT access tokens of our own or of an outside issuer, and the key set and metadata documents.
package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"partnerbilling/models"
)

// Principal is who a request acts for.
type Principal struct {
	ClientID       models.ClientID
	OrganisationID models.OrganisationID // zero: the customer app's backend
	Scopes         []models.Scope        // what the token has and the client still may
}

// Has reports whether the principal may do what the scope stands for.
func (p Principal) Has(scope models.Scope) bool { return slices.Contains(p.Scopes, scope) }

var (
	// ErrNoCredentials says that a request brought no bearer token at all.
	ErrNoCredentials = errors.New("auth: no credentials")
	// ErrInvalidToken says that the bearer token does not count: malformed, expired, forged, for someone else, or of a
	// client that is disabled. What exactly is in the wrapped error, for logs; the caller is not told.
	ErrInvalidToken = errors.New("auth: invalid token")
)

// maxTokenSize is the longest token or assertion that is looked at, in bytes. Ours have about 600.
const maxTokenSize = 8 << 10

// leeway is how far another machine's clock may be off when exp, nbf and iat are judged.
const leeway = 10 * time.Second

// bearerToken reads an Authorization header (RFC 6750 §2.1). Another scheme is ErrNoCredentials, as if none were there.
func bearerToken(authorization string) (string, error) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(authorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", ErrNoCredentials
	}
	token = strings.TrimLeft(token, " ")
	if token == "" || len(token) > maxTokenSize {
		return "", invalid("malformed authorization header")
	}
	return token, nil
}

// invalid is ErrInvalidToken with a reason for the logs.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalidToken, fmt.Errorf(format, args...))
}
