package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"

	"partnerbilling/api"
	"partnerbilling/api/peer"
	"partnerbilling/api/ratelimit"
	"partnerbilling/api/web"
	"partnerbilling/models"
	"partnerbilling/models/seal"
)

// Config is the configuration of svc, read from the SVC_… environment variables that the tags env
// name. [variableHelp] describes each variable with its unit. The tag envDefault is the value of a
// variable that is not set. The tag secret keeps a value out of the log.
type Config struct {
	Env            models.Environment `env:"SVC_ENV"`
	Listen         string             `env:"SVC_LISTEN"`
	OpsListen      string             `env:"SVC_OPS_LISTEN"`
	TrustedProxies []string           `env:"SVC_TRUSTED_PROXIES"`
	PublicBaseURL  string             `env:"SVC_PUBLIC_BASE_URL"`
	DatabaseURL    string             `env:"SVC_DATABASE_URL" secret:"true"`
	DatabasePooler string             `env:"SVC_DATABASE_POOLER" envDefault:"off"`
	ReadURL        string             `env:"SVC_DATABASE_READ_URL" secret:"true"`
	RedisURL       string             `env:"SVC_REDIS_URL" secret:"true"`
	MasterKey      string             `env:"SVC_MASTER_KEY" secret:"true"`
	MasterKeyFile  string             `env:"SVC_MASTER_KEY_FILE"`
	DataDir        string             `env:"SVC_DATA_DIR" envDefault:".svc"`
	DevWorker      string             `env:"SVC_DEV_WORKER" envDefault:"on"`

	LogLevel  slog.Level `env:"SVC_LOG_LEVEL" envDefault:"INFO"`
	LogFormat string     `env:"SVC_LOG_FORMAT" envDefault:"json"`
	OTLPURL   string     `env:"SVC_OTLP_URL"`
	OTLPRatio float64    `env:"SVC_OTLP_RATIO" envDefault:"1"`

	RateLimit      string `env:"SVC_RATE_LIMIT" envDefault:"100"`
	BatchRateLimit string `env:"SVC_BATCH_RATE_LIMIT" envDefault:"5"`

	QuotaOpenRows    quota `env:"SVC_QUOTA_OPEN_ROWS" envDefault:"5000000"`
	QuotaEvents      quota `env:"SVC_QUOTA_EVENTS" envDefault:"50000000"`
	QuotaInvitations quota `env:"SVC_QUOTA_INVITATIONS" envDefault:"5000000"`
	QuotaEndpoints   quota `env:"SVC_QUOTA_ENDPOINTS" envDefault:"10000"`

	AllowPlain      []string `env:"SVC_ALLOW_PLAIN"`
	RedisCAFile     string   `env:"SVC_REDIS_CA_FILE"`
	RedisCertFile   string   `env:"SVC_REDIS_CERT_FILE"`
	RedisTLSKeyFile string   `env:"SVC_REDIS_KEY_FILE"`
	RailCAFile      string   `env:"SVC_RAIL_TLS_CA_FILE"`
	RailCertFile    string   `env:"SVC_RAIL_TLS_CERT_FILE"`
	RailTLSKeyFile  string   `env:"SVC_RAIL_TLS_KEY_FILE"`

	Retention retention

	IssuerURL      string `env:"SVC_ISSUER_URL"`
	IssuerJWKSURL  string `env:"SVC_ISSUER_JWKS_URL"`
	IssuerAudience string `env:"SVC_ISSUER_AUDIENCE"`

	AppLink string `env:"SVC_APP_LINK"`

	DatabaseConns   int           `env:"SVC_DATABASE_CONNS" envDefault:"16"`
	DatabaseQueue   int           `env:"SVC_DATABASE_QUEUE" envDefault:"512"`
	APIConcurrency  int           `env:"SVC_API_CONCURRENCY" envDefault:"32"`
	APIQueueWait    time.Duration `env:"SVC_API_QUEUE_WAIT" envDefault:"500ms"`
	APIAddressConns int           `env:"SVC_API_ADDRESS_CONNS" envDefault:"0"`
	Concurrency     int           `env:"SVC_CONCURRENCY" envDefault:"32"`
	InFlight        int           `env:"SVC_IN_FLIGHT" envDefault:"0"`
	ShutdownWithin  time.Duration `env:"SVC_SHUTDOWN_WITHIN" envDefault:"40s"`

	WebhookRetries      []time.Duration `env:"SVC_WEBHOOK_RETRIES" envDefault:"10s,2m,20m,3h,24h"`
	WebhookLoopback     string          `env:"SVC_WEBHOOK_LOOPBACK"`
	WebhookJitter       float64         `env:"SVC_WEBHOOK_JITTER" envDefault:"0.2"`
	CheckoutConcurrency int             `env:"SVC_CHECKOUT_CONCURRENCY" envDefault:"64"`
	WebhookConcurrency  int             `env:"SVC_WEBHOOK_CONCURRENCY" envDefault:"1024"`

	Rail            string  `env:"SVC_RAIL"`
	RailID          string  `env:"SVC_RAIL_ID"`
	RailURL         string  `env:"SVC_RAIL_URL"`
	RailKey         string  `env:"SVC_RAIL_KEY" secret:"true"`
	RailConcurrency int     `env:"SVC_RAIL_CONCURRENCY" envDefault:"256"`
	RailRate        float64 `env:"SVC_RAIL_RATE" envDefault:"0"`

	Operator string `env:"SVC_OPERATOR"`

	OperatorsFile string `env:"SVC_OPERATORS_FILE"`
	OpsUsername   string `env:"SVC_OPS_USERNAME" envDefault:"operator"`
	OpsPassword   string `env:"SVC_OPS_PASSWORD" secret:"true"`
	OpsRole       string `env:"SVC_OPS_ROLE" envDefault:"look"`
}

// testPrefix is the prefix of the variables for tests. The service ignores them.
const testPrefix = "SVC_TEST_"

// parseConfig reads the configuration from lines of the form NAME=value, and checks it. It refuses
// unknown SVC_… variables, because they are probably misspelt.
func parseConfig(environ []string) (Config, error) {
	values := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "SVC_") && !strings.HasPrefix(name, testPrefix) {
			values[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(variableNames(), name) && !isSecretFile(name) {
			return Config{}, fmt.Errorf("unknown variable %s; `svc config` lists all variables", name)
		}
	}
	if err := readSecretFiles(values); err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	var cfg Config
	if err := env.ParseWithOptions(&cfg, env.Options{Environment: values}); err != nil {
		return Config{}, fmt.Errorf("configuration: %w", nameVariables(err))
	}
	return cfg, cfg.check()
}

// nameVariables makes the parser's errors name environment variables instead of fields of Config.
func nameVariables(err error) error {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return err
	}
	for i, err := range all.Errors {
		var refused env.ParseError
		for _, f := range variables() {
			if errors.As(err, &refused) && refused.Name == f.Name {
				all.Errors[i] = fmt.Errorf("%s: %w", f.Tag.Get("env"), refused.Err)
			}
		}
	}
	return errors.Join(all.Errors...)
}

// variables returns the fields of Config that have an environment variable, in order.
func variables() []reflect.StructField {
	return slices.DeleteFunc(allFields(reflect.TypeFor[Config](), nil), func(f reflect.StructField) bool {
		return f.Tag.Get("env") == ""
	})
}

// allFields returns the fields of a struct and of the structs in it. at is the index of the struct
// in Config. The Index of each returned field leads from Config, as reflect.Value.FieldByIndex
// takes it.
func allFields(of reflect.Type, at []int) (fields []reflect.StructField) {
	for i := range of.NumField() {
		f := of.Field(i)
		f.Index = append(slices.Clone(at), i)
		if fields = append(fields, f); f.Type.Kind() == reflect.Struct {
			fields = append(fields, allFields(f.Type, f.Index)...)
		}
	}
	return fields
}

// variableNames returns the names of all environment variables, in order.
func variableNames() []string {
	var names []string
	for _, f := range variables() {
		names = append(names, f.Tag.Get("env"))
	}
	return names
}

// check checks the settings for every command, and returns all errors. The method complete checks
// what serving commands need in addition.
func (c *Config) check() error {
	var errs []error
	refuse := func(variable, complaint string) { errs = append(errs, fmt.Errorf("%s %s", variable, complaint)) }
	oneOf := func(variable, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			refuse(variable, "must be "+strings.Join(nonEmpty(allowed...), " or "))
		}
	}
	oneOf("SVC_ENV", string(c.Env), "", string(models.EnvSandbox), string(models.EnvProduction))
	oneOf("SVC_DEV_WORKER", c.DevWorker, "on", "off")
	oneOf("SVC_DATABASE_POOLER", c.DatabasePooler, "off", "transaction")
	c.checkReplica(refuse)
	oneOf("SVC_LOG_FORMAT", c.LogFormat, "json", "text")
	if !(c.OTLPRatio > 0 && c.OTLPRatio <= 1) { // also refuses NaN
		refuse("SVC_OTLP_RATIO", "must be above 0 and at most 1")
	}
	oneOf("SVC_RAIL", c.Rail, "", railSandbox, railHTTP)
	oneOf("SVC_WEBHOOK_LOOPBACK", c.WebhookLoopback, "", "on", "off")
	if len(c.RailID) > 64 || strings.IndexFunc(c.RailID, func(r rune) bool { return r < '!' || r > '~' }) >= 0 {
		refuse("SVC_RAIL_ID", "must be at most 64 visible ASCII characters")
	}
	if c.MasterKey != "" && c.MasterKeyFile != "" {
		refuse("SVC_MASTER_KEY", "and SVC_MASTER_KEY_FILE are both set")
	}
	for _, bound := range []struct {
		variable string
		n        int
	}{
		{"SVC_DATABASE_CONNS", c.DatabaseConns}, {"SVC_DATABASE_QUEUE", c.DatabaseQueue},
		{"SVC_API_CONCURRENCY", c.APIConcurrency}, {"SVC_CONCURRENCY", c.Concurrency},
		{"SVC_CHECKOUT_CONCURRENCY", c.CheckoutConcurrency}, {"SVC_WEBHOOK_CONCURRENCY", c.WebhookConcurrency},
		{"SVC_RAIL_CONCURRENCY", c.RailConcurrency},
	} {
		if bound.n < 1 || bound.n > 100_000 {
			refuse(bound.variable, "must be from 1 to 100000")
		}
	}
	if c.APIQueueWait < time.Millisecond || c.APIQueueWait > 5*time.Second {
		refuse("SVC_API_QUEUE_WAIT", "must be from 1ms to 5s")
	}
	if c.APIAddressConns < 0 || c.APIAddressConns > 100_000 {
		refuse("SVC_API_ADDRESS_CONNS", "must be from 0 to 100000")
	}
	c.checkWebhooks(refuse)
	c.Retention.check(refuse)
	for _, part := range c.AllowPlain {
		if !slices.Contains(plainParts, part) {
			refuse("SVC_ALLOW_PLAIN", "must list some of "+strings.Join(plainParts, ", "))
		}
	}
	if c.InFlight < 0 || c.InFlight > 100_000 {
		refuse("SVC_IN_FLIGHT", "must be from 0 to 100000")
	}
	if !(c.RailRate >= 0 && c.RailRate <= 1e6) { // also refuses NaN
		refuse("SVC_RAIL_RATE", "must be from 0 to 1000000")
	}
	if _, _, err := c.rates(); err != nil {
		errs = append(errs, err)
	}
	if _, err := c.proxies(); err != nil {
		errs = append(errs, err)
	}
	if _, err := web.ParseAppLink(c.AppLink); err != nil {
		errs = append(errs, fmt.Errorf("SVC_APP_LINK: %w", err))
	}
	if n := len(nonEmpty(c.IssuerURL, c.IssuerJWKSURL, c.IssuerAudience)); n != 0 && n != 3 {
		refuse("SVC_ISSUER_URL", "must be set together with SVC_ISSUER_JWKS_URL and SVC_ISSUER_AUDIENCE")
	}
	return errors.Join(errs...)
}

// checkWebhooks checks the retries of webhooks. It calls refuse for each fault.
func (c *Config) checkWebhooks(refuse func(variable, complaint string)) {
	if n := len(c.WebhookRetries); n < 1 || n > 5 {
		refuse("SVC_WEBHOOK_RETRIES", "must have 1 to 5 durations")
	}
	if !(c.WebhookJitter >= 0 && c.WebhookJitter <= 0.5) { // also refuses NaN
		refuse("SVC_WEBHOOK_JITTER", "must be from 0 to 0.5")
	}
	for _, d := range c.WebhookRetries {
		if d < time.Second || d > 7*24*time.Hour {
			refuse("SVC_WEBHOOK_RETRIES", "must have durations from 1s to 168h")
			return
		}
	}
}

// nonEmpty returns the values that are not "".
func nonEmpty(values ...string) []string {
	return slices.DeleteFunc(values, func(s string) bool { return s == "" })
}

// proxies returns the trusted proxies.
func (c *Config) proxies() (peer.Proxies, error) {
	proxies, err := peer.ParseProxies(c.TrustedProxies)
	if err != nil {
		return nil, fmt.Errorf("SVC_TRUSTED_PROXIES: %w", err)
	}
	return proxies, nil
}

// rates returns the rates of a client: of all its requests, and of batches submitted, validated or
// retried. The burst of requests is two seconds of the rate, that of batches one second.
func (c *Config) rates() (ordinary, batches ratelimit.Rate, err error) {
	if ordinary, err = ratelimit.ParseRate(c.RateLimit, 2); err != nil {
		return ordinary, batches, fmt.Errorf("SVC_RATE_LIMIT %w", err)
	}
	if batches, err = ratelimit.ParseRate(c.BatchRateLimit, 1); err != nil {
		return ordinary, batches, fmt.Errorf("SVC_BATCH_RATE_LIMIT %w", err)
	}
	return ordinary, batches, nil
}

// complete prepares the configuration of a serving command. It sets the default address, requires
// an environment, and refuses settings that are too weak for production.
func (c *Config) complete(listen string) error {
	if c.Env == "" {
		return errors.New("SVC_ENV must be sandbox or production")
	}
	if c.Listen == "" {
		c.Listen = listen
	}
	if c.Env == models.EnvProduction {
		return c.checkProduction()
	}
	return nil
}

// completePublicURL checks the public base URL, and removes a slash at its end. In the sandbox the
// URL defaults to the address of the listener.
func (c *Config) completePublicURL(address net.Addr) error {
	if c.PublicBaseURL == "" && c.Env == models.EnvSandbox && address != nil {
		reachable, err := reachableAddress(address.String(), networkAddress)
		if err != nil {
			return err
		}
		c.PublicBaseURL = "http://" + reachable
	}
	c.PublicBaseURL = strings.TrimSuffix(c.PublicBaseURL, "/")
	u, err := url.Parse(c.PublicBaseURL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("SVC_PUBLIC_BASE_URL must be an http or https URL")
	case u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return errors.New("SVC_PUBLIC_BASE_URL must have no path, query or user")
	case c.Env == models.EnvProduction && u.Scheme != "https":
		return errors.New("SVC_PUBLIC_BASE_URL must be https in production")
	}
	if err := api.CheckQRBase(c.PublicBaseURL); err != nil {
		return fmt.Errorf("SVC_PUBLIC_BASE_URL: %w", err)
	}
	return nil
}

// keyring reads the master keys from SVC_MASTER_KEY or from the file of SVC_MASTER_KEY_FILE.
func (c *Config) keyring() (*seal.Keyring, error) {
	text, variable := c.MasterKey, "SVC_MASTER_KEY"
	if c.MasterKeyFile != "" {
		variable = "SVC_MASTER_KEY_FILE"
		content, err := os.ReadFile(c.MasterKeyFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", variable, err)
		}
		text = strings.TrimSpace(string(content))
	}
	if text == "" {
		return nil, errors.New("SVC_MASTER_KEY or SVC_MASTER_KEY_FILE must be set")
	}
	ring, err := seal.ParseKeyring(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	return ring, nil
}

// pooled reports whether the database URL leads to a pooler in transaction mode.
func (c *Config) pooled() bool { return c.DatabasePooler == "transaction" }

// LogValue implements slog.LogValuer. It returns a group with each variable that has a value, and
// "(set)" in place of a secret.
func (c Config) LogValue() slog.Value {
	var attrs []slog.Attr
	value := reflect.ValueOf(c)
	for _, f := range variables() {
		field := value.FieldByIndex(f.Index)
		text := fmt.Sprint(field.Interface())
		switch {
		case text == "" || field.Kind() == reflect.Slice && field.Len() == 0:
			continue
		case f.Tag.Get("secret") == "true":
			text = "(set)"
		}
		attrs = append(attrs, slog.String(f.Tag.Get("env"), text))
	}
	return slog.GroupValue(attrs...)
}

// configCommand returns `svc config`, which lists the environment variables with their meanings and
// defaults.
func (p *program) configCommand() *cobra.Command {
	return command("config", "List the environment variables", func(context.Context, []string) error {
		for _, f := range variables() {
			name := f.Tag.Get("env")
			fmt.Fprintf(p.stdout, "%-22s %s", name, variableHelp[name])
			if isSecretFile(name+fileSuffix) && !slices.Contains(variableNames(), name+fileSuffix) {
				fmt.Fprintf(p.stdout, "; or %s%s: the file that contains it", name, fileSuffix)
			}
			if d := f.Tag.Get("envDefault"); d != "" {
				fmt.Fprintf(p.stdout, " (default %s)", d)
			}
			fmt.Fprintln(p.stdout)
		}
		return nil
	})
}
