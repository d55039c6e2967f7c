package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"partnerbilling/api/auth"
	"partnerbilling/api/ratelimit"
	"partnerbilling/models"
)

// ownIssuer returns the handler of a route that exists only if the service has its own
// authorisation server. With an outside issuer the route answers 404.
func ownIssuer(cfg Config, serve func(context.Context, *Request, *Config) error) Handler {
	return func(ctx context.Context, r *Request) error {
		if cfg.Issuer == nil {
			return Refuse(NotFound, "")
		}
		return serve(ctx, r, &cfg)
	}
}

// issueToken answers POST /oauth2/token with an access token, or with an OAuth error.
func issueToken(ctx context.Context, r *Request, cfg *Config) error {
	body, err := r.readAll(ctx, auth.MaxFormSize)
	var refusal *Error
	tooLong := errors.As(err, &refusal) && refusal.Status() == http.StatusRequestEntityTooLarge
	if err != nil && !tooLong {
		return err
	}
	if tooLong {
		r.fast.Response.SetConnectionClose()
	}
	answer := cfg.Issuer.Token(ctx, auth.TokenRequest{
		Query:         string(r.fast.URI().QueryString()),
		ContentType:   strings.Join(r.headers("Content-Type"), ", "),
		Encoding:      strings.Join(r.headers("Content-Encoding"), ", "),
		Authorization: strings.Join(r.headers("Authorization"), ", "),
		Body:          body,
		TooLong:       tooLong,
		RemoteAddress: r.address,
		Limit:         r.tokenLimit(cfg.Limiter),
	})
	if answer.Err != nil {
		level := slog.LevelInfo
		if answer.Status >= http.StatusInternalServerError {
			level = slog.LevelError
		}
		cfg.Log.Log(ctx, level, "token refused", "status", answer.Status, "error", answer.Err)
	}
	return r.token(answer)
}

// tokenLimit returns the function that counts the tokens of a client, nil without a limiter. The
// function returns 0, or the time after which the client may try again.
func (r *Request) tokenLimit(limiter Limiter) func(context.Context, models.ClientID) time.Duration {
	if limiter == nil {
		return nil
	}
	return func(ctx context.Context, client models.ClientID) time.Duration {
		decision := limiter.Take(ctx, client, ratelimit.Tokens)
		r.setLimitHeaders(decision.Limits)
		if decision.Allowed {
			return 0
		}
		return max(decision.RetryAfter, time.Second)
	}
}

// token writes an answer of the token endpoint.
func (r *Request) token(answer auth.TokenResponse) error {
	for name := range answer.Header {
		r.SetHeader(name, answer.Header.Get(name))
	}
	return r.Bytes(answer.Status, answer.Header.Get("Content-Type"), answer.Body)
}

// serveJWKS answers with the public keys that verify the service's access tokens, as a JWK set.
func serveJWKS(ctx context.Context, r *Request, cfg *Config) error {
	document, err := cfg.Issuer.JWKS(ctx)
	if err != nil {
		return err
	}
	return r.publicDocument(document, auth.JWKSMaxAge)
}

// serveMetadata answers with the metadata of the authorisation server (RFC 8414).
func serveMetadata(_ context.Context, r *Request, cfg *Config) error {
	document, err := cfg.Issuer.Metadata()
	if err != nil {
		return err
	}
	return r.publicDocument(document, auth.MetadataMaxAge)
}

// publicDocument answers with a JSON document that any client may cache for maxAge. The document
// has no envelope.
func (r *Request) publicDocument(document []byte, maxAge time.Duration) error {
	r.SetHeader("Cache-Control", "public, max-age="+seconds(maxAge))
	return r.Bytes(http.StatusOK, ContentTypeJSON, document)
}
