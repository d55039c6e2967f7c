package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"

	"partnerbilling/api"
	"partnerbilling/api/web"
	"partnerbilling/models"
)

// environment is where the service runs.
type environment string

const (
	sandbox    environment = "sandbox"
	production environment = "production"
)

// Config is the whole configuration, from SVC_… environment variables. help documents a variable, secret keeps its value
// from being printed.
type Config struct {
	Env           environment `env:"SVC_ENV" help:"sandbox or production; svc dev is always sandbox"`
	Listen        string      `env:"SVC_LISTEN" help:"address to serve HTTP on; api and dev: default 127.0.0.1:8080; worker: health and metrics, default none; dashboard: default 127.0.0.1:8081; rail: default 127.0.0.1:8082"`
	OpsListen     string      `env:"SVC_OPS_LISTEN" help:"address for /livez, /readyz and /metrics, which are then not on SVC_LISTEN; api, worker and dev"`
	PublicBaseURL string      `env:"SVC_PUBLIC_BASE_URL" help:"the service as partners and customers reach it, without a path; sandbox default http://SVC_LISTEN"`
	DatabaseURL   string      `env:"SVC_DATABASE_URL" secret:"true" help:"postgres:// URL; svc dev starts a private server without it"`
	RedisURL      string      `env:"SVC_REDIS_URL" secret:"true" help:"redis:// URL; svc dev starts a private server without it"`
	MasterKey     string      `env:"SVC_MASTER_KEY" secret:"true" help:"key ring that seals stored secrets: id:base64 of 32 bytes, more after commas; the first seals"`
	MasterKeyFile string      `env:"SVC_MASTER_KEY_FILE" help:"file with what SVC_MASTER_KEY would hold"`
	DataDir       string      `env:"SVC_DATA_DIR" envDefault:".svc" help:"svc dev's folder"`
	DevWorker     string      `env:"SVC_DEV_WORKER" envDefault:"on" help:"off: svc dev runs without a worker of its own"`

	LogLevel  slog.Level `env:"SVC_LOG_LEVEL" envDefault:"INFO" help:"DEBUG, INFO, WARN or ERROR"`
	LogFormat string     `env:"SVC_LOG_FORMAT" envDefault:"json" help:"json or text; svc dev: text"`
	OTLPURL   string     `env:"SVC_OTLP_URL" help:"OTLP/HTTP collector for spans, such as http://localhost:4318; none without it"`

	RateLimit      string `env:"SVC_RATE_LIMIT" envDefault:"100" help:"requests a second of each API client, or off; twice as many at once; of tokens a tenth"`
	BatchRateLimit string `env:"SVC_BATCH_RATE_LIMIT" envDefault:"5" help:"batches that each API client may submit, validate or retry a second, or off"`

	QuotaOpenRows    quota `env:"SVC_QUOTA_OPEN_ROWS" envDefault:"5000000" help:"rows of batches that one organisation may have unsettled at a time, or off; more are answered 429"`
	QuotaEvents      quota `env:"SVC_QUOTA_EVENTS" envDefault:"50000000" help:"webhook events that may be stored of one organisation before it gets no new payment intents, open ones included, or off"`
	QuotaInvitations quota `env:"SVC_QUOTA_INVITATIONS" envDefault:"5000000" help:"invitations that one organisation may have open at a time, or off"`
	QuotaEndpoints   quota `env:"SVC_QUOTA_ENDPOINTS" envDefault:"10000" help:"webhook endpoints that one organisation may have, or off"`

	IssuerURL      string `env:"SVC_ISSUER_URL" help:"outside issuer of access tokens; all three SVC_ISSUER_… or none"`
	IssuerJWKSURL  string `env:"SVC_ISSUER_JWKS_URL" help:"its key set"`
	IssuerAudience string `env:"SVC_ISSUER_AUDIENCE" help:"the audience its tokens must have"`

	AppLink string `env:"SVC_APP_LINK" help:"deep link into the customer app, with {path}"`

	DatabaseConns  int           `env:"SVC_DATABASE_CONNS" envDefault:"16" help:"connections to Postgres of each pool"`
	DatabaseQueue  int           `env:"SVC_DATABASE_QUEUE" envDefault:"512" help:"API requests that may wait for a connection; more are answered 503"`
	APIConcurrency int           `env:"SVC_API_CONCURRENCY" envDefault:"32" help:"requests that an API process works on at once; twice SVC_DATABASE_CONNS keeps the connections busy"`
	APIQueueWait   time.Duration `env:"SVC_API_QUEUE_WAIT" envDefault:"500ms" help:"for which more requests may wait for their turn; one that would wait longer is answered 503 at once"`
	Concurrency    int           `env:"SVC_CONCURRENCY" envDefault:"16" help:"tasks a worker runs at once"`
	InFlight       int           `env:"SVC_IN_FLIGHT" envDefault:"0" help:"tasks that one organisation may have on its way at once; 0: of debits half as many again as the workers can run, else 16"`
	ShutdownWithin time.Duration `env:"SVC_SHUTDOWN_WITHIN" envDefault:"40s" help:"time for requests and tasks to end in a shutdown"`

	WebhookRetries      []time.Duration `env:"SVC_WEBHOOK_RETRIES" envDefault:"10s,2m,20m,3h,24h" help:"waits after a webhook's first, second, … failure; 1 to 5 of them"`
	WebhookLoopback     string          `env:"SVC_WEBHOOK_LOOPBACK" help:"on: webhooks may go to this machine's loopback addresses; sandbox only, svc dev always"`
	WebhookJitter       float64         `env:"SVC_WEBHOOK_JITTER" envDefault:"0.2" help:"part of each wait by which it varies both ways, 0 to 0.5"`
	CheckoutConcurrency int             `env:"SVC_CHECKOUT_CONCURRENCY" envDefault:"64" help:"payments that a worker has under way at once"`
	WebhookConcurrency  int             `env:"SVC_WEBHOOK_CONCURRENCY" envDefault:"1024" help:"webhooks that a worker has under way at once"`

	Rail            string  `env:"SVC_RAIL" help:"sandbox or http; production: always http"`
	RailID          string  `env:"SVC_RAIL_ID" help:"names the rail that SVC_RAIL_URL leads to; the database remembers it and takes no other"`
	RailURL         string  `env:"SVC_RAIL_URL" help:"base URL of the payment gateway"`
	RailKey         string  `env:"SVC_RAIL_KEY" secret:"true" help:"id:secret that signs gateway requests; svc rail: that it accepts"`
	RailConcurrency int     `env:"SVC_RAIL_CONCURRENCY" envDefault:"256" help:"calls of the gateway that a worker has under way at once"`
	RailRate        float64 `env:"SVC_RAIL_RATE" envDefault:"0" help:"gateway requests a second of the whole fleet; 0: no limit"`

	OpsUsername string `env:"SVC_OPS_USERNAME" envDefault:"operator" help:"the operator's login for /ops"`
	OpsPassword string `env:"SVC_OPS_PASSWORD" secret:"true" help:"its password; no dashboard without it"`
}

// quota is a bound on what one organisation may have stored; 0, written as off, for none.
type quota int64

// maxQuota is more than any table can hold.
const maxQuota = 1_000_000_000_000

// UnmarshalText reads a number from 1 to maxQuota, or off.
func (q *quota) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*q = 0
		return nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 1 || n > maxQuota {
		return fmt.Errorf(`must be a number from 1 to %d, or "off"`, int64(maxQuota))
	}
	*q = quota(n)
	return nil
}

// String is the quota as configuration has it.
func (q quota) String() string {
	if q == 0 {
		return "off"
	}
	return strconv.FormatInt(int64(q), 10)
}

func (c *Config) quotas() models.Quotas {
	return models.Quotas{
		OpenRows: int64(c.QuotaOpenRows), Events: int64(c.QuotaEvents), Invitations: int64(c.QuotaInvitations),
		Endpoints: int64(c.QuotaEndpoints),
	}
}

// testPrefix is of variables that steer tests; the service ignores them.
const testPrefix = "SVC_TEST_"

// parseConfig reads the configuration. A SVC_… variable that does not exist is an error, as it is most likely one that does,
// misspelt.
func parseConfig(environ []string) (Config, error) {
	values := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "SVC_") && !strings.HasPrefix(name, testPrefix) {
			values[name] = value
		}
	}
	for name := range values {
		if !slices.Contains(variableNames(), name) {
			return Config{}, fmt.Errorf("unknown variable %s; `svc config` lists those there are", name)
		}
	}
	var cfg Config
	if err := env.ParseWithOptions(&cfg, env.Options{Environment: values}); err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	return cfg, cfg.check()
}

func variables() []reflect.StructField {
	return reflect.VisibleFields(reflect.TypeFor[Config]())
}

func variableNames() []string {
	var names []string
	for _, f := range variables() {
		names = append(names, f.Tag.Get("env"))
	}
	return names
}

// check finds what is wrong with each value by itself.
func (c *Config) check() error {
	var errs []error
	refuse := func(variable, complaint string) { errs = append(errs, fmt.Errorf("%s %s", variable, complaint)) }
	oneOf := func(variable, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			refuse(variable, "must be "+strings.Join(nonEmpty(allowed...), " or "))
		}
	}
	oneOf("SVC_ENV", string(c.Env), "", string(sandbox), string(production))
	oneOf("SVC_DEV_WORKER", c.DevWorker, "on", "off")
	oneOf("SVC_LOG_FORMAT", c.LogFormat, "json", "text")
	oneOf("SVC_RAIL", c.Rail, "", "sandbox", "http")
	oneOf("SVC_WEBHOOK_LOOPBACK", c.WebhookLoopback, "", "on", "off")
	if len(c.RailID) > 64 || strings.IndexFunc(c.RailID, func(r rune) bool { return r < '!' || r > '~' }) >= 0 {
		refuse("SVC_RAIL_ID", "must be at most 64 visible ASCII characters")
	}
	if c.MasterKey != "" && c.MasterKeyFile != "" {
		refuse("SVC_MASTER_KEY", "and SVC_MASTER_KEY_FILE are both set")
	}
	for variable, n := range map[string]int{
		"SVC_DATABASE_CONNS": c.DatabaseConns, "SVC_DATABASE_QUEUE": c.DatabaseQueue, "SVC_CONCURRENCY": c.Concurrency,
		"SVC_API_CONCURRENCY": c.APIConcurrency, "SVC_RAIL_CONCURRENCY": c.RailConcurrency,
		"SVC_WEBHOOK_CONCURRENCY": c.WebhookConcurrency, "SVC_CHECKOUT_CONCURRENCY": c.CheckoutConcurrency,
	} {
		if n < 1 || n > 100_000 {
			refuse(variable, "must be from 1 to 100000")
		}
	}
	if c.APIQueueWait < time.Millisecond || c.APIQueueWait > 5*time.Second {
		refuse("SVC_API_QUEUE_WAIT", "must be from 1ms to 5s")
	}
	c.checkWebhooks(refuse)
	if c.InFlight < 0 || c.InFlight > 100_000 {
		refuse("SVC_IN_FLIGHT", "must be from 0 to 100000")
	}
	if c.RailRate < 0 {
		refuse("SVC_RAIL_RATE", "must not be negative")
	}
	if _, _, err := c.rates(); err != nil {
		errs = append(errs, err)
	}
	if _, err := web.ParseAppLink(c.AppLink); err != nil {
		errs = append(errs, fmt.Errorf("SVC_APP_LINK: %w", err))
	}
	if n := len(nonEmpty(c.IssuerURL, c.IssuerJWKSURL, c.IssuerAudience)); n != 0 && n != 3 {
		refuse("SVC_ISSUER_URL", "SVC_ISSUER_JWKS_URL and SVC_ISSUER_AUDIENCE go together")
	}
	return errors.Join(errs...)
}

func (c *Config) checkWebhooks(refuse func(variable, complaint string)) {
	if n := len(c.WebhookRetries); n < 1 || n > 5 {
		refuse("SVC_WEBHOOK_RETRIES", "must have 1 to 5 durations")
	}
	if c.WebhookJitter < 0 || c.WebhookJitter > 0.5 {
		refuse("SVC_WEBHOOK_JITTER", "must be from 0 to 0.5")
	}
	for _, d := range c.WebhookRetries {
		if d < time.Second || d > 7*24*time.Hour {
			refuse("SVC_WEBHOOK_RETRIES", "must have durations from 1s to 168h")
			return
		}
	}
}

func nonEmpty(values ...string) []string {
	return slices.DeleteFunc(values, func(s string) bool { return s == "" })
}

func (c *Config) rates() (ordinary, batches api.Rate, err error) {
	if ordinary, err = api.ParseRate(c.RateLimit, 2); err != nil {
		return ordinary, batches, fmt.Errorf("SVC_RATE_LIMIT %w", err)
	}
	if batches, err = api.ParseRate(c.BatchRateLimit, 1); err != nil {
		return ordinary, batches, fmt.Errorf("SVC_BATCH_RATE_LIMIT %w", err)
	}
	return ordinary, batches, nil
}

// complete fills in and checks what every command that serves needs.
func (c *Config) complete(listen string) error {
	if c.Env == "" {
		return errors.New("SVC_ENV must be sandbox or production")
	}
	if c.Listen == "" {
		c.Listen = listen
	}
	switch {
	case c.Env == production && c.rail() != "http":
		return errors.New("SVC_RAIL must be http in production")
	case c.Env == production && c.WebhookLoopback != "":
		return errors.New("SVC_WEBHOOK_LOOPBACK must not be set in production")
	}
	return nil
}

// completePublicURL fills in and checks the public base URL, given the address that the service listens on.
func (c *Config) completePublicURL(address net.Addr) error {
	if c.PublicBaseURL == "" && c.Env == sandbox && address != nil {
		c.PublicBaseURL = "http://" + address.String()
	}
	c.PublicBaseURL = strings.TrimSuffix(c.PublicBaseURL, "/")
	u, err := url.Parse(c.PublicBaseURL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("SVC_PUBLIC_BASE_URL must be an http or https URL")
	case u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return errors.New("SVC_PUBLIC_BASE_URL must have no path, query or user")
	case c.Env == production && u.Scheme != "https":
		return errors.New("SVC_PUBLIC_BASE_URL must be https in production")
	}
	if err := api.CheckQRBase(c.PublicBaseURL); err != nil {
		return fmt.Errorf("SVC_PUBLIC_BASE_URL: %w", err)
	}
	return nil
}

// keyring reads the master key.
func (c *Config) keyring() (*models.Keyring, error) {
	text := c.MasterKey
	if c.MasterKeyFile != "" {
		content, err := os.ReadFile(c.MasterKeyFile)
		if err != nil {
			return nil, fmt.Errorf("SVC_MASTER_KEY_FILE: %w", err)
		}
		text = strings.TrimSpace(string(content))
	}
	if text == "" {
		return nil, errors.New("SVC_MASTER_KEY or SVC_MASTER_KEY_FILE must be set")
	}
	ring, err := models.ParseKeyring(text)
	if err != nil {
		return nil, fmt.Errorf("SVC_MASTER_KEY: %w", err)
	}
	return ring, nil
}

// LogValue is the configuration for the log, without secrets.
func (c Config) LogValue() slog.Value {
	var attrs []slog.Attr
	value := reflect.ValueOf(c)
	for _, f := range variables() {
		text := fmt.Sprint(value.FieldByIndex(f.Index).Interface())
		switch {
		case text == "":
			continue
		case f.Tag.Get("secret") == "true":
			text = "(set)"
		}
		attrs = append(attrs, slog.String(f.Tag.Get("env"), text))
	}
	return slog.GroupValue(attrs...)
}

func (p *program) configCommand() *cobra.Command {
	return command("config", "List the environment variables", func(context.Context, []string) error {
		for _, f := range variables() {
			fmt.Fprintf(p.stdout, "%-22s %s", f.Tag.Get("env"), f.Tag.Get("help"))
			if d := f.Tag.Get("envDefault"); d != "" {
				fmt.Fprintf(p.stdout, " (default %s)", d)
			}
			fmt.Fprintln(p.stdout)
		}
		return nil
	})
}
