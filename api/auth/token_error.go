package auth

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"partnerbilling/models"
)

// tokenError is an error of the token endpoint, in the format of RFC 6749 §5.2.
type tokenError struct {
	status      int
	code        string
	description string        // for the client's developer; does not reveal which part of the credentials was wrong
	retryAfter  time.Duration // 0: no Retry-After
	cause       error         // for logs; may be nil
}

func (e *tokenError) Error() string {
	if e.cause != nil {
		return "auth: " + e.code + ": " + e.cause.Error()
	}
	return "auth: " + e.code + ": " + e.description
}

func (e *tokenError) Unwrap() error { return e.cause }

func invalidRequest(description string) *tokenError {
	return &tokenError{status: http.StatusBadRequest, code: "invalid_request", description: description}
}

// invalidClient returns the same response for an unknown client, a wrong secret, a bad assertion
// and a disabled client.
func invalidClient(cause error) *tokenError {
	return &tokenError{
		status: http.StatusUnauthorized, code: "invalid_client",
		description: "client authentication failed", cause: cause,
	}
}

var (
	errFormTooLong = &tokenError{
		status: http.StatusRequestEntityTooLarge, code: "invalid_request", description: "the body is too long",
	}
	errUnsupportedGrant = &tokenError{
		status: http.StatusBadRequest, code: "unsupported_grant_type",
		description: "grant_type must be " + grantClientCredentials,
	}
	errInvalidScope = &tokenError{
		status: http.StatusBadRequest, code: "invalid_scope",
		description: "scope must be a space-separated list of scopes granted to the client",
	}
)

// tooManyFailures returns the response to a failed attempt over the limit. RFC 6749 §5.2 has no
// code for a rate limit, so the code is temporarily_unavailable of §4.1.2.1.
func tooManyFailures(retryAfter time.Duration, cause error) *tokenError {
	return &tokenError{
		status: http.StatusTooManyRequests, code: "temporarily_unavailable",
		description: "too many failed attempts; try again later", retryAfter: retryAfter, cause: cause,
	}
}

// tooManyTokens returns the response to an authenticated client over its rate limit for tokens.
func tooManyTokens(retryAfter time.Duration) *tokenError {
	return &tokenError{
		status: http.StatusTooManyRequests, code: "temporarily_unavailable",
		description: "too many token requests; reuse a token until it expires", retryAfter: retryAfter,
	}
}

// asTokenError maps an error to a tokenError: an unavailable dependency or the end of a context to
// 503, an unknown error to 500.
func asTokenError(err error) *tokenError {
	var e *tokenError
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, models.ErrUnavailable), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled):
		return &tokenError{
			status: http.StatusServiceUnavailable, code: "temporarily_unavailable",
			description: "try again later", retryAfter: time.Second, cause: err,
		}
	default:
		return &tokenError{
			status: http.StatusInternalServerError, code: "server_error", description: "internal error", cause: err,
		}
	}
}

// seconds formats d as whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
