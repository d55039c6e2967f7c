package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
)

// Config configures the service's own authorisation server.
type Config struct {
	// URL is the issuer: the public base URL without trailing slash.
	URL string
	// Audience is the audience of access tokens. Default: URL.
	Audience string
	// ClientTokens and AddressTokens limit the tokens that this process issues per client and per
	// address, also while Redis is down.
	ClientTokens, AddressTokens Bound
	// Now returns the real time. Default: time.Now.
	Now func() time.Time
	// Log receives errors that do not fail a request. Default: slog.Default().
	Log *slog.Logger
	// Metrics registers the counter of failed authentications. Default: a new registry.
	Metrics *prometheus.Registry
}

func (c Config) withDefaults() Config {
	if c.Audience == "" {
		c.Audience = c.URL
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	return c
}

// The URL paths of the authorisation server.
const (
	TokenPath    = "/oauth2/token"
	JWKSPath     = "/.well-known/jwks.json"
	MetadataPath = "/.well-known/oauth-authorization-server"
)

// Issuer is the service's own authorisation server. It is safe for concurrent use.
type Issuer struct {
	url, audience string
	store         *models.Store
	keys          *models.Keys
	failures      *throttle          // of failed authentications
	issued        *throttle          // of access tokens
	failed        prometheus.Counter // failed authentications
	log           *slog.Logger
	now           func() time.Time
}

// NewIssuer returns an authorisation server that authenticates the clients in store, and signs with
// keys.
func NewIssuer(store *models.Store, keys *models.Keys, cfg Config) *Issuer {
	cfg = cfg.withDefaults()
	failed := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "svc_client_authentication_failures_total",
		Help: "Token requests that failed client authentication.",
	})
	cfg.Metrics.MustRegister(failed)
	return &Issuer{
		failed: failed, log: cfg.Log,
		url: cfg.URL, audience: cfg.Audience, store: store, keys: keys, now: cfg.Now,
		failures: newThrottle(clientFailures, addressFailures, cfg.Now),
		issued:   newThrottle(cfg.ClientTokens, cfg.AddressTokens, cfg.Now),
	}
}

// The cache lifetimes of the key set and the metadata. JWKSMaxAge is far below
// models.KeyActivationDelay, so that cached key sets contain every key in use.
const (
	JWKSMaxAge     = 5 * time.Minute
	MetadataMaxAge = time.Hour
)

// JWKS returns the key set (RFC 7517) that verifies access tokens, including keys that become
// active soon.
func (i *Issuer) JWKS(ctx context.Context) ([]byte, error) {
	live, err := i.keys.Live(ctx, models.KeyAccessToken)
	if err != nil {
		return nil, err
	}
	set := jwk.NewSet()
	for _, key := range live {
		public, err := publicJWK(key)
		if err == nil {
			err = set.AddKey(public)
		}
		if err != nil {
			return nil, fmt.Errorf("auth: key set: %w", err)
		}
	}
	return json.Marshal(set)
}

func publicJWK(key models.Key) (jwk.Key, error) {
	public, err := jwk.Import(publicKeyOf(key))
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]any{
		jwk.KeyIDKey: key.ID.String(), jwk.KeyUsageKey: "sig", jwk.AlgorithmKey: jwa.EdDSA(),
	} {
		if err := public.Set(name, value); err != nil {
			return nil, err
		}
	}
	return public, nil
}

// metadata is the document of RFC 8414. It omits claims without elements, such as response types
// (§3.2).
type metadata struct {
	Issuer                string         `json:"issuer"`
	TokenEndpoint         string         `json:"token_endpoint"`
	JWKSURI               string         `json:"jwks_uri"`
	ScopesSupported       []models.Scope `json:"scopes_supported"`
	GrantTypes            []string       `json:"grant_types_supported"`
	AuthMethods           []string       `json:"token_endpoint_auth_methods_supported"`
	AuthSigningAlgorithms []string       `json:"token_endpoint_auth_signing_alg_values_supported"`
	ServiceDocumentation  string         `json:"service_documentation"`
}

// Metadata returns the authorisation server's metadata document (RFC 8414).
func (i *Issuer) Metadata() ([]byte, error) {
	return json.Marshal(metadata{
		Issuer:                i.url,
		TokenEndpoint:         i.url + TokenPath,
		JWKSURI:               i.url + JWKSPath,
		ScopesSupported:       append(append([]models.Scope{}, models.PartnerScopes...), models.CustomerAppScopes...),
		GrantTypes:            []string{grantClientCredentials},
		AuthMethods:           []string{"client_secret_basic", "client_secret_post", "private_key_jwt"},
		AuthSigningAlgorithms: algorithmNames(),
		ServiceDocumentation:  i.url + "/docs",
	})
}
