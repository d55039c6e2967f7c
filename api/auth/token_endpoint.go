package auth

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"partnerbilling/models"
)

const grantClientCredentials = "client_credentials"

// MaxFormSize is the maximum size of a token request's body, in bytes.
const MaxFormSize = maxTokenSize + 4<<10

// TokenRequest is the part of an HTTP request that the token endpoint needs.
type TokenRequest struct {
	Query         string // must be empty
	ContentType   string
	Encoding      string // Content-Encoding; must be empty or identity
	Authorization string // the header
	Body          []byte
	TooLong       bool       // the body exceeds MaxFormSize and was not read
	RemoteAddress netip.Addr // of the client; zero if it is unknown
	// Limit counts a request of an authenticated client and returns how long the client must wait;
	// 0 admits the request. A nil Limit admits all requests.
	Limit func(ctx context.Context, client models.ClientID) time.Duration
}

// TokenResponse is the token endpoint's response (RFC 6749 §5). Unlike the other answers of the
// API, its body has no envelope.
type TokenResponse struct {
	Status int
	Header http.Header
	Body   []byte
	Err    error // the cause of a failure, for logs
}

type tokenSuccess struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int    `json:"expires_in"` // seconds
	Scope       string `json:"scope"`
}

type tokenFailure struct {
	Error       string `json:"error"`
	Description string `json:"error_description"`
}

// Token answers POST /oauth2/token.
func (i *Issuer) Token(ctx context.Context, request TokenRequest) TokenResponse {
	granted, err := i.grant(ctx, request)
	if err != nil {
		return TokenFailure(err)
	}
	return tokenResponse(http.StatusOK, tokenHeader(), granted, nil)
}

func tokenHeader() http.Header {
	return http.Header{
		"Content-Type":  {"application/json;charset=UTF-8"},
		"Cache-Control": {"no-store"},
		"Pragma":        {"no-cache"},
	}
}

// TokenFailure returns the token endpoint's response for an error.
func TokenFailure(err error) TokenResponse {
	header, failure := tokenHeader(), asTokenError(err)
	if failure.status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Basic realm="svc", charset="UTF-8"`)
	}
	if failure.retryAfter > 0 {
		header.Set("Retry-After", seconds(failure.retryAfter))
	}
	return tokenResponse(failure.status, header, tokenFailure{failure.code, failure.description}, err)
}

func tokenResponse(status int, header http.Header, body any, err error) TokenResponse {
	encoded, encodeErr := json.Marshal(body)
	return TokenResponse{Status: status, Header: header, Body: encoded, Err: errors.Join(err, encodeErr)}
}

// grant authenticates the client, counts the request against its limits, and issues a token.
func (i *Issuer) grant(ctx context.Context, request TokenRequest) (tokenSuccess, error) {
	form, err := parseForm(request)
	if err != nil {
		return tokenSuccess{}, err
	}
	switch form.Get("grant_type") {
	case grantClientCredentials:
	case "":
		return tokenSuccess{}, invalidRequest("grant_type is missing")
	default:
		return tokenSuccess{}, errUnsupportedGrant
	}
	attempt, err := readCredentials(request.Authorization, form)
	if err != nil {
		return tokenSuccess{}, err
	}
	client, err := i.authenticate(ctx, attempt, request.RemoteAddress)
	if err != nil {
		return tokenSuccess{}, err
	}
	if request.Limit != nil {
		if wait := request.Limit(ctx, client.ID); wait > 0 {
			return tokenSuccess{}, tooManyTokens(wait)
		}
	}
	if wait := i.issued.count(client.ID.String(), addressText(request.RemoteAddress)); wait > 0 {
		return tokenSuccess{}, tooManyTokens(wait)
	}
	scopes, err := narrow(client.Scopes, form.Get("scope"))
	if err != nil {
		return tokenSuccess{}, err
	}
	token, err := i.mint(ctx, client.Client, client.fingerprint, scopes)
	if err != nil {
		return tokenSuccess{}, err
	}
	return tokenSuccess{token, "Bearer", int(AccessTokenLifetime / time.Second), joinScopes(scopes)}, nil
}

// parseForm parses the parameters in the body. A parameter must not occur twice (RFC 6749 §3.2).
func parseForm(request TokenRequest) (url.Values, error) {
	if request.Query != "" {
		return nil, invalidRequest("parameters must be in the body, not in the URL")
	}
	if request.TooLong || len(request.Body) > MaxFormSize {
		return nil, errFormTooLong
	}
	media, _, err := mime.ParseMediaType(request.ContentType)
	if err != nil || media != "application/x-www-form-urlencoded" {
		return nil, invalidRequest("the body must be application/x-www-form-urlencoded")
	}
	if request.Encoding != "" && !strings.EqualFold(request.Encoding, "identity") {
		return nil, invalidRequest("the body must not have a content encoding")
	}
	form, err := url.ParseQuery(string(request.Body))
	if err != nil {
		return nil, invalidRequest("the body is malformed")
	}
	for _, values := range form {
		if len(values) > 1 {
			return nil, invalidRequest("a parameter occurs more than once")
		}
	}
	return form, nil
}

// narrow returns the requested scopes in the client's order, or all scopes of the client if none
// are requested. asked is the parameter scope, which may have extra spaces. narrow returns
// errInvalidScope for a scope that the client lacks, and if asked has only spaces.
func narrow(held []models.Scope, asked string) ([]models.Scope, error) {
	if asked == "" {
		return held, nil
	}
	wanted := strings.FieldsFunc(asked, func(c rune) bool { return c == ' ' })
	if len(wanted) == 0 { // only spaces
		return nil, errInvalidScope
	}
	for _, scope := range wanted {
		if !slices.Contains(held, models.Scope(scope)) {
			return nil, errInvalidScope
		}
	}
	var granted []models.Scope
	for _, scope := range held {
		if slices.Contains(wanted, string(scope)) {
			granted = append(granted, scope)
		}
	}
	return granted, nil
}
