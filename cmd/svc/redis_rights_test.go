package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"partnerbilling/deploy/local"
	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// rareCommands are the commands in the rules of OPERATIONS.md that only faults need.
var rareCommands = map[string][]string{
	// A worker that stops hands tasks back, a task that fails too often is archived, an idle
	// subscription is pinged. The others are those of a Cluster.
	"svc":           {"rpush", "zrange", "ping", "asking", "cluster|slots"},
	"svc-dashboard": {"zscore", "asking", "cluster|slots", "cluster|keyslot", "cluster|info"},
}

// rightsFleet is a fleet on a Redis with certificates of its own authority and the users of
// OPERATIONS.md.
type rightsFleet struct {
	*fleet
	certs *local.Certificates
	admin *redis.Client
	host  string
}

func newRightsFleet(t *testing.T, variables ...string) *rightsFleet {
	certs, err := local.NewCertificates(t.TempDir())
	must(t, err)
	servers, err := local.Temp(t.Context(), local.Options{Ephemeral: true, WithoutPostgres: true, Certificates: certs})
	must(t, err)
	t.Cleanup(func() { must(t, servers.Stop(context.Background())) })
	options, err := redis.ParseURL(servers.RedisURL)
	must(t, err)
	options.TLSConfig, err = certs.Client()
	must(t, err)
	f := &rightsFleet{certs: certs, admin: redis.NewClient(options), host: options.Addr}
	t.Cleanup(func() { _ = f.admin.Close() })
	variables = append(variables, "SVC_REDIS_URL", f.url("svc"), "SVC_REDIS_CA_FILE", certs.CAFile,
		"SVC_REDIS_CERT_FILE", certs.ClientCertFile, "SVC_REDIS_KEY_FILE", certs.ClientKeyFile)
	f.fleet = newFleet(t, modelstest.DSN(t), variables...)
	return f
}

// url returns the URL of a user of Redis.
func (f *rightsFleet) url(user string) string {
	return (&url.URL{Scheme: "rediss", User: url.UserPassword(user, "secret"), Host: f.host, Path: "/0"}).String()
}

// aclRules returns the rules of OPERATIONS.md by user.
func aclRules(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/OPERATIONS.md")
	must(t, err)
	rules := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^user (\S+) (on .*)$`).FindAllStringSubmatch(string(text), -1) {
		rules[m[1]] = strings.Fields(strings.ReplaceAll(m[2], ">PASSWORD", ">secret"))
	}
	return rules
}

// use gives a user of Redis the rules of OPERATIONS.md.
func (f *rightsFleet) use(user string) (allowed []string) {
	f.Helper()
	rules := aclRules(f.T)[user]
	args := []any{"ACL", "SETUSER", user}
	for _, rule := range rules {
		args = append(args, rule)
		if command, ok := strings.CutPrefix(rule, "+"); ok {
			allowed = append(allowed, command)
		}
	}
	must(f.T, f.admin.Do(f.Context(), args...).Err())
	must(f.T, f.admin.Do(f.Context(), "CONFIG", "RESETSTAT").Err())
	must(f.T, f.admin.Do(f.Context(), "ACL", "LOG", "RESET").Err())
	return allowed
}

// requireExactly requires that the user was refused nothing, and has used each command that it may
// use, but for the rare ones.
func (f *rightsFleet) requireExactly(user string, allowed []string) {
	f.Helper()
	refused, err := f.admin.Do(f.Context(), "ACL", "LOG").Slice()
	must(f.T, err)
	for _, entry := range refused {
		f.Errorf("%s was refused: %v", user, entry)
	}
	stats, err := f.admin.Info(f.Context(), "commandstats").Result()
	must(f.T, err)
	for _, command := range allowed {
		if !strings.Contains(stats, "cmdstat_"+command+":") && !slices.Contains(rareCommands[user], command) {
			f.Errorf("%s may use %s, and does not", user, command)
		}
	}
}

// The service works over TLS with its own authority, and with the rights of OPERATIONS.md and no
// others: batches, payments, retries of webhooks and the limit of the rail.
func TestRedisWithTLSAndLeastRights(t *testing.T) {
	if testing.Short() {
		t.Skip("a drill with whole servers")
	}
	t.Parallel()
	handler, err := rail.NewServer(rail.ServerConfig{
		Rail: railtest.NewScripted(), Keys: []rail.SigningKey{{ID: "test", Secret: []byte("secret")}},
	})
	must(t, err)
	gateway := httptest.NewServer(handler)
	t.Cleanup(gateway.Close)
	f := newRightsFleet(t, "SVC_RAIL", "http", "SVC_RAIL_URL", gateway.URL, "SVC_RAIL_KEY", "test:secret",
		"SVC_RAIL_RATE", "1000", "SVC_RATE_LIMIT", "1000", "SVC_BATCH_RATE_LIMIT", "100", "SVC_WEBHOOK_RETRIES", "1s")
	allowed := f.use("svc")
	var calls atomic.Int64
	delivered := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch calls.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			close(delivered)
		}
	}))
	t.Cleanup(receiver.Close)
	f.start(models.BehaviourPays)
	_, err = f.api.PutWebhookEndpoint(t.Context(), "default", receiver.URL, "transactionStatus", "batchSettled")
	must(t, err)
	f.submit(1)
	_, err = f.api.AwaitBatch(t.Context(), f.site.ID.String(), f.batches[0])
	must(t, err)
	select {
	case <-delivered:
	case <-time.After(awaitTimeout):
		t.Fatal("the webhook is not delivered again")
	}
	for _, worker := range f.workers {
		if code := worker.terminate(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	f.requireExactly("svc", allowed)
}

// The dashboard works with the rights of OPERATIONS.md.
func TestDashboardWithLeastRights(t *testing.T) {
	if testing.Short() {
		t.Skip("a drill with whole servers")
	}
	t.Parallel()
	f := newRightsFleet(t)
	f.use("svc")
	f.start(models.BehaviourPays)
	f.awaitServers(f.admin)
	for _, worker := range f.workers {
		worker.kill()
	}
	var task string
	f.await("a task is pending", func() bool {
		// The API dispatches debits once it has counted the workers, which Redis lists for some
		// seconds after their death.
		f.submit(1)
		var err error
		task, err = f.admin.LIndex(t.Context(), "asynq:{debits}:pending", 0).Result()
		return err == nil
	})
	allowed := f.use("svc-dashboard")
	p := startSvc(t, with(f.env, "SVC_REDIS_URL", f.url("svc-dashboard"), "SVC_LISTEN", "127.0.0.1:0",
		"SVC_OPS_LISTEN", "127.0.0.1:0", "SVC_OPS_PASSWORD", "secret", "SVC_MASTER_KEY", ""), "dashboard")
	address := after(p.expect("the dashboard is at"))
	ops := after(strings.Split(p.stdout.String(), "\n")[0])
	for _, path := range []string{
		"/api/queues", "/api/queues/debits", "/api/servers", "/api/redis_info", "/api/queue_stats",
		"/api/queues/debits/pending_tasks", "/api/queues/debits/active_tasks", "/api/queues/debits/retry_tasks",
		"/api/queues/debits/scheduled_tasks", "/api/queues/debits/archived_tasks", "/api/queues/debits/completed_tasks",
		"/api/queues/debits/groups", "/api/scheduler_entries", "/api/queues/debits/tasks/" + task,
	} {
		if status, body := get(t, address+"/queues"+path, "operator", "secret"); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body := get(t, ops+"/readyz", "", ""); status != http.StatusOK {
		t.Errorf("/readyz: %d %s", status, body)
	}
	f.requireExactly("svc-dashboard", allowed)
}

// A process that does not trust the authority of Redis, or has no certificate, says so.
func TestRedisWithWrongCertificates(t *testing.T) {
	if testing.Short() {
		t.Skip("a drill with whole servers")
	}
	t.Parallel()
	f := newRightsFleet(t)
	f.use("svc")
	other, err := local.NewCertificates(t.TempDir())
	must(t, err)
	for want, changes := range map[string][]string{
		"certificate signed by unknown authority": {"SVC_REDIS_CA_FILE", other.CAFile},
		"certificate required":                    {"SVC_REDIS_CERT_FILE", "", "SVC_REDIS_KEY_FILE", ""},
		"unknown certificate authority":           {"SVC_REDIS_CERT_FILE", other.ClientCertFile, "SVC_REDIS_KEY_FILE", other.ClientKeyFile},
		"WRONGPASS":                               {"SVC_REDIS_URL", strings.Replace(f.url("svc"), "secret", "guess", 1)},
	} {
		worker := startSvc(t, with(f.env, changes...), "worker")
		line, ok := worker.stderr.await(t.Context(), "the worker waits for Redis")
		if !ok || !strings.Contains(line, want) {
			t.Errorf("the log of a worker says %q, want %q", line, want)
		}
		worker.kill()
	}
}
