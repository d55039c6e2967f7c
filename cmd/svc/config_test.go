package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"partnerbilling/api"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/seal"
	"partnerbilling/queue"
)

func TestConfigRefusesInvalidValues(t *testing.T) {
	t.Parallel()
	key := "SVC_MASTER_KEY=k1:" + strings.Repeat("A", 43) + "="
	for name, tt := range map[string]struct {
		environ []string
		want    string
	}{
		"misspelt name":       {[]string{"SVC_DATABSE_URL=x"}, "unknown variable SVC_DATABSE_URL"},
		"environment":         {[]string{"SVC_ENV=prod"}, "SVC_ENV must be"},
		"rate":                {[]string{"SVC_RATE_LIMIT=many"}, "SVC_RATE_LIMIT must be"},
		"batch rate":          {[]string{"SVC_BATCH_RATE_LIMIT=-1"}, "SVC_BATCH_RATE_LIMIT must be"},
		"quota":               {[]string{"SVC_QUOTA_EVENTS=0"}, `SVC_QUOTA_EVENTS: must be a number from 1 to 1000000000000, or`},
		"quota too large":     {[]string{"SVC_QUOTA_OPEN_ROWS=1000000000001"}, "must be a number from 1"},
		"days":                {[]string{"SVC_RETENTION_ALERTS=90d"}, "SVC_RETENTION_ALERTS: "},
		"quota not a number":  {[]string{"SVC_QUOTA_ENDPOINTS=many"}, "must be a number from 1"},
		"negative quota":      {[]string{"SVC_QUOTA_INVITATIONS=-1"}, "must be a number from 1"},
		"number":              {[]string{"SVC_CONCURRENCY=all"}, "SVC_CONCURRENCY: "},
		"number too small":    {[]string{"SVC_CONCURRENCY=0"}, "SVC_CONCURRENCY must be from 1"},
		"API concurrency":     {[]string{"SVC_API_CONCURRENCY=0"}, "SVC_API_CONCURRENCY must be from 1"},
		"trace ratio 0":       {[]string{"SVC_OTLP_RATIO=0"}, "SVC_OTLP_RATIO must be above 0 and at most 1"},
		"trace ratio NaN":     {[]string{"SVC_OTLP_RATIO=NaN"}, "SVC_OTLP_RATIO must be above 0 and at most 1"},
		"rail rate NaN":       {[]string{"SVC_RAIL_RATE=NaN"}, "SVC_RAIL_RATE must be from 0 to 1000000"},
		"rail rate infinite":  {[]string{"SVC_RAIL_RATE=Inf"}, "SVC_RAIL_RATE must be from 0 to 1000000"},
		"jitter NaN":          {[]string{"SVC_WEBHOOK_JITTER=NaN"}, "SVC_WEBHOOK_JITTER must be from 0 to 0.5"},
		"queue wait":          {[]string{"SVC_API_QUEUE_WAIT=1m"}, "SVC_API_QUEUE_WAIT must be from 1ms to 5s"},
		"address connections": {[]string{"SVC_API_ADDRESS_CONNS=-1"}, "SVC_API_ADDRESS_CONNS must be from 0"},
		"switch":              {[]string{"SVC_DEV_WORKER=maybe"}, "SVC_DEV_WORKER must be on or off"},
		"loopback":            {[]string{"SVC_WEBHOOK_LOOPBACK=yes"}, "SVC_WEBHOOK_LOOPBACK must be on or off"},
		"rail id":             {[]string{"SVC_RAIL_ID=a b"}, "SVC_RAIL_ID must be at most 64"},
		"log format":          {[]string{"SVC_LOG_FORMAT=xml"}, "SVC_LOG_FORMAT must be"},
		"two master keys":     {[]string{key, "SVC_MASTER_KEY_FILE=f"}, "both set"},
		"partial issuer":      {[]string{"SVC_ISSUER_URL=https://id.example"}, "SVC_ISSUER_URL must be set together"},
		"app link":            {[]string{"SVC_APP_LINK=javascript:alert(1)//{path}"}, "SVC_APP_LINK"},
		"misspelt names":      {[]string{"SVC_D=", "SVC_C=", "SVC_B=", "SVC_A=", "SVC_E="}, "unknown variable SVC_A;"},
		"several errors":      {[]string{"SVC_ENV=x", "SVC_LOG_FORMAT=y"}, "SVC_LOG_FORMAT"},
		"errors in order": {
			[]string{"SVC_RAIL_CONCURRENCY=0", "SVC_WEBHOOK_CONCURRENCY=0", "SVC_CONCURRENCY=0", "SVC_DATABASE_QUEUE=0",
				"SVC_DATABASE_CONNS=0"},
			"SVC_DATABASE_CONNS must be from 1 to 100000\nSVC_DATABASE_QUEUE must be from 1 to 100000\n" +
				"SVC_CONCURRENCY must be from 1 to 100000\nSVC_WEBHOOK_CONCURRENCY must be from 1 to 100000\n" +
				"SVC_RAIL_CONCURRENCY must be from 1 to 100000",
		},
	} {
		if _, err := parseConfig(tt.environ); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestQuotasAreConfigured(t *testing.T) {
	t.Parallel()
	cfg, err := parseConfig(nil)
	want := models.Quotas{OpenRows: 5_000_000, Events: 50_000_000, Invitations: 5_000_000, Endpoints: 10_000}
	if err != nil || cfg.quotas() != want {
		t.Errorf("default quotas %+v, %v", cfg.quotas(), err)
	}
	cfg, err = parseConfig([]string{
		"SVC_QUOTA_OPEN_ROWS=1", "SVC_QUOTA_EVENTS=off", "SVC_QUOTA_INVITATIONS=1000000000000", "SVC_QUOTA_ENDPOINTS=7",
	})
	if want := (models.Quotas{OpenRows: 1, Invitations: maxQuota, Endpoints: 7}); err != nil || cfg.quotas() != want {
		t.Errorf("quotas %+v, %v", cfg.quotas(), err)
	}
	if text := cfg.LogValue().String(); !strings.Contains(text, "SVC_QUOTA_EVENTS=off") {
		t.Errorf("logged: %s", text)
	}
}

// The defaults of the configuration are those that the queue assumes of other workers.
func TestSlotsAreTheDefaults(t *testing.T) {
	t.Parallel()
	cfg, err := parseConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	for q, got := range map[models.Queue]int{
		models.QueueDebits: cfg.Concurrency, models.QueueCheckout: cfg.CheckoutConcurrency,
		models.QueueWebhooks: cfg.WebhookConcurrency,
	} {
		if want := queue.DefaultSlots(q); got != want {
			t.Errorf("%s: %d slots, want %d", q, got, want)
		}
	}
}

func TestConfigIgnoresOtherVariables(t *testing.T) {
	t.Parallel()
	if _, err := parseConfig([]string{"PATH=/bin", "SVC_TEST_DATABASE_URL=x", "XSVC_FOO=1"}); err != nil {
		t.Error(err)
	}
}

func TestPublicBaseURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env       models.Environment
		url, want string // want "": refused
	}{
		{models.EnvSandbox, "http://localhost:8080/", "http://localhost:8080"},
		{models.EnvSandbox, "https://billing.example", "https://billing.example"},
		{models.EnvSandbox, "billing.example", ""},
		{models.EnvSandbox, "https://billing.example/v1", ""},
		{models.EnvSandbox, "https://billing.example?x=1", ""},
		{models.EnvSandbox, "https://user@billing.example", ""},
		{models.EnvSandbox, "ftp://billing.example", ""},
		{models.EnvSandbox, "https://bücher.example", ""},
		{models.EnvProduction, "http://billing.example", ""},
		{models.EnvProduction, "", ""},
		{models.EnvProduction, "https://billing.example", "https://billing.example"},
	} {
		cfg := Config{Env: tt.env, PublicBaseURL: tt.url}
		err := cfg.completePublicURL(nil)
		if (err == nil) != (tt.want != "") || err == nil && cfg.PublicBaseURL != tt.want {
			t.Errorf("%s %q: %q, %v", tt.env, tt.url, cfg.PublicBaseURL, err)
		}
	}
}

func TestProductionRequiresHTTPRail(t *testing.T) {
	t.Parallel()
	cfg := Config{Env: models.EnvProduction, Rail: "sandbox"}
	if err := cfg.complete(""); err == nil {
		t.Error("production accepts the sandbox rail")
	}
	cfg = Config{}
	if err := cfg.complete(""); err == nil {
		t.Error("an empty environment is accepted")
	}
}

func TestConfigIsLoggedWithoutSecrets(t *testing.T) {
	t.Parallel()
	cfg := Config{
		DatabaseURL: "postgres://svc:hunter2@db/svc", RedisURL: "redis://:hunter2@r", MasterKey: "hunter2",
		RailKey:     "a:hunter2",
		OpsPassword: "hunter2", Listen: "127.0.0.1:8080",
	}
	text := cfg.LogValue().String()
	if strings.Contains(text, "hunter2") || !strings.Contains(text, "127.0.0.1:8080") {
		t.Errorf("logged: %s", text)
	}
	if strings.Contains(strings.ToLower(text), "password=h") {
		t.Errorf("logged: %s", text)
	}
	if strings.Contains(text, "SVC_TRUSTED_PROXIES") {
		t.Errorf("an empty list is logged: %s", text)
	}
}

func TestCommandsReportMissingConfiguration(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		env  map[string]string
		want string
	}{
		{[]string{"api"}, nil, "SVC_ENV must be"},
		{[]string{"worker"}, map[string]string{"SVC_ENV": "sandbox"}, "SVC_DATABASE_URL and SVC_REDIS_URL must be set"},
		{[]string{"worker", "--queues", "debts"}, nil, `no queue "debts"`},
		{[]string{"api"}, map[string]string{
			"SVC_ENV": "sandbox", "SVC_DATABASE_URL": "postgres://x", "SVC_REDIS_URL": "redis://x",
		}, "SVC_MASTER_KEY"},
		{[]string{"dashboard"}, map[string]string{"SVC_ENV": "sandbox"}, "must be set"},
		{[]string{"dev"}, map[string]string{"SVC_ENV": "production"}, "svc dev is always sandbox"},
		{[]string{"admin", "audit"}, nil, "SVC_DATABASE_URL must be set"},
		{[]string{"unheardOf"}, nil, "unknown command"},
	} {
		code, _, stderr := svc(t, tt.env, tt.args...)
		if code != 1 || !strings.Contains(stderr, tt.want) {
			t.Errorf("svc %v: exit code %d, %q, want %q", tt.args, code, stderr, tt.want)
		}
	}
}

// The error of a malformed keyring names the variable that it comes from.
func TestMalformedKeyringNamesItsVariable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(file, []byte("broken\n"), 0o600))
	for variable, cfg := range map[string]Config{
		"SVC_MASTER_KEY": {MasterKey: "broken"}, "SVC_MASTER_KEY_FILE": {MasterKeyFile: file},
	} {
		if _, err := cfg.keyring(); err == nil || !strings.HasPrefix(err.Error(), variable+": ") {
			t.Errorf("%s: %v", variable, err)
		}
	}
}

func TestConfigCommandListsEveryVariable(t *testing.T) {
	t.Parallel()
	code, out, _ := svc(t, nil, "config")
	for _, name := range variableNames() {
		if !strings.Contains(out, name) || code != 0 {
			t.Errorf("svc config does not list %s", name)
		}
	}
	for _, name := range variableNames() {
		if variableHelp[name] == "" {
			t.Errorf("%s has no help", name)
		}
	}
	if len(variableHelp) != len(variableNames()) {
		t.Errorf("%d help texts for %d variables", len(variableHelp), len(variableNames()))
	}
}

// A serving command that is stopped during its start succeeds; other commands fail.
func TestStopDuringStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	environ := []string{
		"SVC_ENV=sandbox", "SVC_DATABASE_URL=" + modelstest.DSN(t), "SVC_REDIS_URL=redis://127.0.0.1:1",
		"SVC_MASTER_KEY=" + seal.GenerateMasterKey(), "SVC_LISTEN=127.0.0.1:0",
	}
	for _, tt := range []struct {
		args []string
		want int
	}{{[]string{"api"}, 0}, {[]string{"worker"}, 0}, {[]string{"admin", "audit"}, 1}} {
		var stdout, stderr bytes.Buffer
		code := run(ctx, tt.args, environ, &stdout, &stderr)
		if code != tt.want || (code == 0) == strings.Contains(stderr.String(), "svc:") {
			t.Errorf("svc %v: exit code %d, %q", tt.args, code, stderr.String())
		}
	}
}

func TestOpenAPIIsPrinted(t *testing.T) {
	t.Parallel()
	code, out, _ := svc(t, nil, "openapi")
	want, err := api.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 || out != string(want)+"\n" {
		t.Errorf("exit code %d, %d bytes", code, len(out))
	}
}
