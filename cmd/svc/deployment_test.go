package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"partnerbilling/deploy/local"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// deploymentTest starts processes of different deployments on one database.
type deploymentTest struct {
	*testing.T
	env   map[string]string
	store *models.Store
}

func newDeploymentTest(t *testing.T) deploymentTest {
	t.Parallel()
	servers, err := local.Temp(t.Context(), local.Options{}) // durable: production refuses others
	must(t, err)
	t.Cleanup(func() { must(t, servers.Stop(context.Background())) })
	dsn := servers.DatabaseURL
	j := deploymentTest{T: t, env: map[string]string{
		"SVC_DATABASE_URL": dsn, "SVC_REDIS_URL": servers.RedisURL, "SVC_MASTER_KEY": modelstest.MasterKey,
		"SVC_LISTEN": "127.0.0.1:0", "SVC_LOG_LEVEL": "WARN", "SVC_OPS_PASSWORD": "a long password of an operator",
		"SVC_RAIL_URL": "https://rail.example", "SVC_RAIL_KEY": "id:a secret of thirty-two characters",
	}}
	if j.store, err = models.Open(postgres.Config{DSN: dsn}); err != nil {
		t.Fatal(err)
	}
	j.store.SetKeyring(modelstest.Keyring(t, modelstest.MasterKey))
	t.Cleanup(func() { _ = j.store.Close() })
	modelstest.Migrate(t, j.store)
	return j
}

// joins starts a process that must serve, and ends it.
func (j deploymentTest) joins(variables []string, args ...string) {
	j.Helper()
	p := startSvc(j.T, with(j.env, variables...), args...)
	p.expect(map[string]string{"api": "listens on", "worker": "health and metrics are at"}[args[0]])
	if code := p.terminate(); code != 0 {
		j.Errorf("%s: exit code %d", p.name, code)
	}
}

// refused runs a command that must refuse the database.
func (j deploymentTest) refused(variables []string, args ...string) {
	j.Helper()
	p := startSvc(j.T, with(j.env, variables...), args...)
	if code := p.wait(time.Minute); code != 1 || !strings.Contains(p.stderr.String(), "belongs to another deployment") {
		j.Errorf("%s with %v: exit code %d: %s", p.name, variables, code, p.stderr)
	}
}

// commands are the commands that use the database and check its deployment.
var commands = [][]string{
	{"api"}, {"worker"}, {"dashboard"}, {"migrate", "up"}, {"migrate", "status"}, {"admin", "audit"},
	{"admin", "organisation", "list"}, {"admin", "keys", "list"}, {"admin", "rail", "show"},
	{"admin", "rail", "replace"},
}

// No command accepts the database of the other environment.
func TestEnvironmentsAreNotMixed(t *testing.T) {
	j := newDeploymentTest(t)
	sandboxEnv := []string{"SVC_ENV", "sandbox"}
	productionEnv := []string{"SVC_ENV", "production", "SVC_PUBLIC_BASE_URL", "https://billing.example",
		"SVC_ALLOW_PLAIN", "postgres,redis,rail"}
	// These commands do not determine the database's deployment.
	for _, args := range [][]string{{"migrate", "up"}, {"admin", "audit"}, {"admin", "organisation", "list"}} {
		if code, _, stderr := svc(t, with(j.env, sandboxEnv...), args...); code != 0 {
			t.Fatalf("%v: %s", args, stderr)
		}
	}
	j.joins(productionEnv, "api")
	for _, args := range append(commands, []string{"rail"}, []string{"dev"}) {
		if args[0] == "rail" || args[0] == "dev" {
			j.refused(appendEnv(sandboxEnv, "SVC_DATA_DIR", t.TempDir()), args...)
			continue
		}
		j.refused(sandboxEnv, args...)
	}
	j.joins(productionEnv, "api")
	d, err := j.store.Deployment(t.Context())
	if err != nil || d.Environment != models.EnvProduction || d.WebhookLoopback {
		t.Errorf("%+v, %v", d, err)
	}
}

func appendEnv(variables []string, more ...string) []string {
	return append(append([]string{}, variables...), more...)
}

// A process with another rail does not start. A process without a rail starts.
func TestRailsAreNotMixed(t *testing.T) {
	j := newDeploymentTest(t)
	env := func(more ...string) []string { return appendEnv([]string{"SVC_ENV", "sandbox"}, more...) }
	j.joins(env(), "api")
	j.joins(env("SVC_RAIL", "http", "SVC_RAIL_ID", "a"), "worker")
	j.joins(env("SVC_RAIL", "http", "SVC_RAIL_ID", "a", "SVC_RAIL_URL", "https://moved.example"), "worker")
	for _, other := range [][]string{
		env("SVC_RAIL", "http", "SVC_RAIL_ID", "b"), env("SVC_RAIL", "http"), env("SVC_RAIL", "sandbox"), env(),
	} {
		j.refused(other, "worker")
	}
	j.refused(env("SVC_RAIL", "http", "SVC_RAIL_ID", "b"), "api")
	j.refused(env("SVC_RAIL_ID", "a"), "admin", "audit") // of the sandbox rail
	j.joins(env(), "api")
	code, out, stderr := svc(t, with(j.env, env("SVC_RAIL", "http", "SVC_RAIL_ID", "b")...), "admin", "rail", "replace")
	if code != 0 || !strings.Contains(out, "http b") {
		t.Errorf("replace: %d %s", code, stderr)
	}
	j.joins(env("SVC_RAIL", "http", "SVC_RAIL_ID", "b"), "worker")
	j.refused(env("SVC_RAIL", "http", "SVC_RAIL_ID", "a"), "worker")
	site := modelstest.Site(t, j.store)
	modelstest.Submit(t, j.store, modelstest.Batch(site, "b", "ada"))
	if _, err := j.store.DB().ExecContext(t.Context(), "UPDATE batch_rows SET state = 'inProgress'"); err != nil {
		t.Fatal(err)
	}
	code, _, stderr = svc(t, with(j.env, env("SVC_RAIL", "http", "SVC_RAIL_ID", "c")...), "admin", "rail", "replace")
	if code != 1 || !strings.Contains(stderr, "in doubt") {
		t.Errorf("replace in doubt: %d %s", code, stderr)
	}
}

// Webhooks may go to loopback addresses if svc dev has used the database, or if
// SVC_WEBHOOK_LOOPBACK is on.
func TestWebhookLoopback(t *testing.T) {
	j := newDeploymentTest(t)
	targets := func(dev bool, setting string) models.WebhookTargets {
		t.Helper()
		s := &service{cfg: Config{Env: models.EnvSandbox, WebhookLoopback: setting}, dev: dev}
		if err := s.join(t.Context(), j.store, false); err != nil {
			t.Fatal(err)
		}
		return s.webhookTargets()
	}
	for _, step := range []struct {
		name, setting string
		dev, loopback bool
	}{
		{"unset", "", false, false}, {"on", "on", false, true}, {"unset again", "", false, false},
		{"off", "off", false, false}, {"svc dev", "", true, true}, {"joined svc dev", "", false, true},
	} {
		if got := targets(step.dev, step.setting); got != (models.WebhookTargets{Sandbox: true,
			Loopback: step.loopback}) {
			t.Errorf("%s: %+v", step.name, got)
		}
	}
	for _, setting := range []string{"on", "off"} {
		cfg := Config{Env: models.EnvProduction, WebhookLoopback: setting}
		if err := cfg.complete(""); err == nil || !strings.Contains(err.Error(), "SVC_WEBHOOK_LOOPBACK") {
			t.Errorf("production with %s: %v", setting, err)
		}
	}
}
