package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"partnerbilling/api/operator"
	"partnerbilling/queue"
)

// minRailSecret is the minimum length of the secret in SVC_RAIL_KEY in production, in bytes.
const minRailSecret = 32

// plainParts are the possible values of SVC_ALLOW_PLAIN: the connections that checkPlain then
// accepts as they are.
var plainParts = []string{"postgres", "redis", "rail", "issuer"}

// fileSuffix is the suffix of a variable that names the file of a secret. NAME_FILE replaces NAME.
const fileSuffix = "_FILE"

// isSecretFile reports whether a variable names the file of a secret: NAME_FILE for a secret NAME.
func isSecretFile(name string) bool {
	secret, ok := strings.CutSuffix(name, fileSuffix)
	return ok && slices.ContainsFunc(variables(), func(f reflect.StructField) bool {
		return f.Tag.Get("env") == secret && f.Tag.Get("secret") == "true"
	})
}

// readSecretFiles replaces the variable NAME_FILE of each secret by NAME, with the content of the
// file without surrounding white space. It leaves SVC_MASTER_KEY_FILE, a variable of Config, as it
// is: only some commands may read the master key.
func readSecretFiles(values map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if slices.Contains(variableNames(), name) || !isSecretFile(name) {
			continue
		}
		secret := strings.TrimSuffix(name, fileSuffix)
		if values[secret] != "" {
			errs = append(errs, fmt.Errorf("%s and %s are both set", secret, name))
			continue
		}
		path := values[name]
		delete(values, name)
		if path == "" {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		values[secret] = strings.TrimSpace(string(content))
	}
	return errors.Join(errs...)
}

// checkProduction refuses settings that are too weak for production. It returns all errors.
func (c *Config) checkProduction() error {
	var errs []error
	refuse := func(variable, complaint string) { errs = append(errs, fmt.Errorf("%s %s", variable, complaint)) }
	if c.railName() != railHTTP {
		refuse("SVC_RAIL", "must be http in production")
	}
	if c.WebhookLoopback != "" {
		refuse("SVC_WEBHOOK_LOOPBACK", "must not be set in production")
	}
	if _, secret, _ := strings.Cut(c.RailKey, ":"); c.RailKey != "" && len(secret) < minRailSecret {
		refuse("SVC_RAIL_KEY", fmt.Sprintf("must have a secret of at least %d bytes in production", minRailSecret))
	}
	if c.OpsPassword != "" && len(c.OpsPassword) < operator.MinPassword {
		refuse("SVC_OPS_PASSWORD", fmt.Sprintf("must have at least %d bytes in production", operator.MinPassword))
	}
	c.checkPlain(refuse)
	return errors.Join(errs...)
}

// checkPlain calls refuse for each connection that is not secure enough for production, unless
// SVC_ALLOW_PLAIN names the connection. A connection needs TLS with a verified certificate. The
// connections to Redis and its Sentinels also need a password. Postgres may use a Unix socket
// instead of TLS.
func (c *Config) checkPlain(refuse func(variable, complaint string)) {
	https := func(part, variable, value string) {
		u, err := url.Parse(value)
		if value != "" && !c.allowsPlain(part) && (err != nil || u.Scheme != "https") {
			refuse(variable, "must be https in production, unless SVC_ALLOW_PLAIN names "+part)
		}
	}
	https("issuer", "SVC_ISSUER_URL", c.IssuerURL)
	https("issuer", "SVC_ISSUER_JWKS_URL", c.IssuerJWKSURL)
	https("rail", "SVC_RAIL_URL", c.RailURL)
	databases := [][2]string{{"SVC_DATABASE_URL", c.DatabaseURL}, {"SVC_DATABASE_READ_URL", c.ReadURL}}
	for _, d := range databases {
		if variable, dsn := d[0], d[1]; dsn != "" && !c.allowsPlain("postgres") && !isVerifiedDatabase(dsn) {
			refuse(variable, "must have sslmode=verify-full or a Unix socket in production, "+
				"unless SVC_ALLOW_PLAIN names postgres")
		}
	}
	if c.RedisURL != "" && !c.allowsPlain("redis") {
		if r, err := queue.ParseRedis(c.RedisURL, nil); err != nil || !r.IsVerified() {
			refuse("SVC_REDIS_URL",
				"must be rediss in production, with a password and under Sentinel with sentinel_password, "+
					"unless SVC_ALLOW_PLAIN names redis")
		}
	}
}

// allowsPlain reports whether SVC_ALLOW_PLAIN names one of plainParts.
func (c *Config) allowsPlain(part string) bool { return slices.Contains(c.AllowPlain, part) }

// isVerifiedDatabase reports whether every server of a URL is reached over a Unix socket, or over
// TLS with its certificate and name verified.
func isVerifiedDatabase(dsn string) bool {
	cfg, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return false
	}
	verified := func(host string, t *tls.Config) bool {
		return strings.HasPrefix(host, "/") || t != nil && !t.InsecureSkipVerify && t.ServerName != ""
	}
	for _, f := range cfg.Fallbacks {
		if !verified(f.Host, f.TLSConfig) {
			return false
		}
	}
	return verified(cfg.Host, cfg.TLSConfig)
}

// tlsFiles holds the paths of PEM files: a server's certificate authorities, and the client's
// certificate and key. A path may be "". Errors name the files by their variables, which begin with
// prefix.
type tlsFiles struct{ prefix, ca, cert, key string }

// config reads the files. If no path is set, it returns nil: the default settings of TLS.
func (f tlsFiles) config() (*tls.Config, error) {
	if f.ca == "" && f.cert == "" && f.key == "" {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("%s_CA_FILE: %w", f.prefix, err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s_CA_FILE has no certificate", f.prefix)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, fmt.Errorf("%s_CERT_FILE and %s_KEY_FILE go together", f.prefix, f.prefix)
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("%s_CERT_FILE: %w", f.prefix, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// redis returns the address of the configured Redis with its TLS settings. It does not connect.
func (c *Config) redis() (queue.Redis, error) {
	secure, err := tlsFiles{"SVC_REDIS", c.RedisCAFile, c.RedisCertFile, c.RedisTLSKeyFile}.config()
	if err != nil {
		return queue.Redis{}, err
	}
	r, err := queue.ParseRedis(c.RedisURL, secure)
	if err != nil {
		return queue.Redis{}, fmt.Errorf("SVC_REDIS_URL: %w", err)
	}
	return r, nil
}

// railTLS returns the TLS settings for the payment gateway; nil for the default settings.
func (c *Config) railTLS() (*tls.Config, error) {
	return tlsFiles{"SVC_RAIL_TLS", c.RailCAFile, c.RailCertFile, c.RailTLSKeyFile}.config()
}
