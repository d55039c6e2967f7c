package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"partnerbilling/api/client"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
	"partnerbilling/queue/queuetest"
)

// fleet is a `svc api` and its `svc worker` processes, on one database and one Redis.
type fleet struct {
	*testing.T
	store   *models.Store
	redis   *queuetest.Server
	env     map[string]string
	workers []*process
	api     *client.Client
	site    models.Site
	batches []string

	behaviours   []models.Behaviour // of the customers, repeated in order
	apiProcess   *process
	apiURL       string
	clientConfig client.Config
}

func startFleet(t *testing.T) *fleet {
	t.Parallel()
	f := newFleet(t, modelstest.DSN(t))
	f.start(models.Behaviours...)
	return f
}

// start creates customers whose behaviours repeat in order, and starts an API and two workers.
func (f *fleet) start(behaviours ...models.Behaviour) {
	f.Helper()
	f.behaviours = behaviours
	for i := range customers {
		modelstest.Customer(f.T, f.store, f.site.ID, fmt.Sprint(i), behaviours[i%len(behaviours)])
	}
	f.startAPI()
	f.startWorker()
	f.startWorker()
}

// newFleet prepares a fleet on a migrated database with a Site, without processes. variables are
// alternating names and values. Unless one of them is SVC_REDIS_URL, the fleet has a Redis of its
// own.
func newFleet(t *testing.T, dsn string, variables ...string) *fleet {
	f := &fleet{T: t}
	f.env = with(map[string]string{
		"SVC_ENV": "sandbox", "SVC_DATABASE_URL": dsn, "SVC_RATE_LIMIT": "off",
		"SVC_BATCH_RATE_LIMIT": "off", "SVC_WEBHOOK_LOOPBACK": "on", "SVC_MASTER_KEY": modelstest.MasterKey,
		"SVC_LOG_LEVEL": "WARN",
	}, variables...)
	if f.env["SVC_REDIS_URL"] == "" {
		f.redis = queuetest.Start(t)
		f.env["SVC_REDIS_URL"] = f.redis.URL
	}
	var err error
	if f.store, err = models.Open(postgres.Config{DSN: dsn}); err != nil {
		t.Fatal(err)
	}
	f.store.SetKeyring(modelstest.Keyring(t, modelstest.MasterKey))
	t.Cleanup(func() { _ = f.store.Close() })
	f.site = modelstest.Site(t, f.store)
	return f
}

func (f *fleet) startAPI() {
	f.Helper()
	partner, secret, err := f.store.CreateClientWithSecret(f.Context(), f.site.OrganisationID, "partner",
		models.PartnerScopes)
	if err != nil {
		f.Fatal(err)
	}
	f.apiProcess = startSvc(f.T, with(f.env, "SVC_LISTEN", "127.0.0.1:0"), "api")
	listening := f.apiProcess.expect("listens on")
	f.apiURL = "http://" + listening[strings.LastIndex(listening, " ")+1:]
	f.clientConfig = client.Config{BaseURL: f.apiURL, ClientID: partner.ID.String(), ClientSecret: secret}
	f.api = client.New(f.clientConfig)
}

func (f *fleet) startWorker() {
	f.Helper()
	f.workers = append(f.workers, startSvc(f.T, f.env, "worker"))
}

// awaitServers waits until Redis lists a worker as the dispatcher counts it.
func (f *fleet) awaitServers(client *redis.Client) {
	f.Helper()
	f.await("a worker is listed", func() bool {
		servers, err := client.Keys(f.Context(), "asynq:servers:*").Result()
		return err == nil && len(servers) > 0
	})
}

// with returns env with further variables, given as alternating names and values.
func with(env map[string]string, more ...string) map[string]string {
	all := map[string]string{}
	for name, value := range env {
		all[name] = value
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

const (
	customers = 40
	batchRows = 400
)

// submit submits n batches over HTTP and returns the longest response time.
func (f *fleet) submit(n int) time.Duration {
	f.Helper()
	var slowest time.Duration
	for range n {
		batch := client.Batch{BatchReference: fmt.Sprintf("batch %d", len(f.batches))}
		for i := range batchRows {
			batch.Rows = append(batch.Rows, client.Row{
				CustomerReference: fmt.Sprint(i % customers), RowReference: fmt.Sprint(i), Amount: int64(100 + i),
			})
		}
		began := time.Now()
		if _, err := f.api.SubmitBatch(f.Context(), f.site.ID.String(), batch); err != nil {
			f.Fatalf("submit: %v", err)
		}
		slowest = max(slowest, time.Since(began))
		f.batches = append(f.batches, batch.BatchReference)
	}
	return slowest
}

// awaitSome waits until some rows are settled. Others must still be unsettled.
func (f *fleet) awaitSome() {
	f.Helper()
	f.await("some rows are settled", func() bool { return f.countRows("state = 'settled'") > 0 })
	if f.countRows("state <> 'settled'") == 0 {
		f.Fatal("all rows were settled before the fault")
	}
}

func (f *fleet) countRows(where string) (n int) {
	f.Helper()
	if err := f.store.DB().NewRaw("SELECT count(*) FROM batch_rows WHERE "+where).Scan(f.Context(), &n); err != nil {
		f.Fatal(err)
	}
	return n
}

// requireSettled waits until all batches are settled, and checks each row's outcome against its
// customer's behaviour. The rail must have exactly one debit for each succeeded row, and the audit
// must be clean.
func (f *fleet) requireSettled() {
	f.Helper()
	began := time.Now()
	defer func() { f.Logf("settled after %s", time.Since(began)) }()
	ctx, cancel := context.WithTimeout(f.Context(), awaitTimeout)
	defer cancel()
	succeeded := 0
	for _, reference := range f.batches {
		batch, err := f.api.AwaitBatch(ctx, f.site.ID.String(), reference)
		if err != nil {
			f.Fatalf("%s did not settle within %s: %v; counts %+v; %d unsettled rows in all",
				reference, awaitTimeout, err, batch.Counts, f.countRows("state <> 'settled'"))
		}
		for i, row := range batch.Rows {
			if want := outcomes[f.behaviours[i%customers%len(f.behaviours)]]; row.Outcome != want {
				f.Errorf("%s row %d: %q, want %q", reference, i, row.Outcome, want)
			}
		}
		succeeded += batch.Counts.Succeeded
	}
	if n := f.countSandboxDebits(); n != succeeded {
		f.Errorf("%d debits on the rail for %d succeeded rows", n, succeeded)
	}
	code, out, stderr := svc(f.T, f.env, "admin", "audit")
	if code != 0 {
		f.Errorf("the audit found:\n%s%s", out, stderr)
	}
}

func (f *fleet) countSandboxDebits() int {
	f.Helper()
	n := 0
	for after := ""; ; {
		debits, err := f.store.SandboxDebits(f.Context(), after, 1000)
		if err != nil {
			f.Fatal(err)
		}
		if len(debits) == 0 {
			return n
		}
		for _, d := range debits {
			if d.Status == models.SandboxSucceeded {
				n++
			}
			after = d.Key
		}
	}
}

// outcomes are the expected outcomes of debits, by the customer's behaviour.
var outcomes = map[models.Behaviour]string{
	models.BehaviourPays: "succeeded", models.BehaviourInsufficientFunds: "insufficientFunds",
	models.BehaviourAccountUnavailable: "accountUnavailable", models.BehaviourLimitExceeded: "limitExceeded",
	models.BehaviourDeclines: "declinedByCustomer", models.BehaviourSlow: "succeeded",
	models.BehaviourBankDown: "succeeded", models.BehaviourAnswerLost: "succeeded",
}

func TestWorkerKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and chaos kills and flushes too")
	}
	f := startFleet(t)
	f.submit(20)
	f.awaitSome()
	f.workers[0].kill()
	f.requireSettled()
}

func TestRedisFlushed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and chaos kills and flushes too")
	}
	f := startFleet(t)
	f.submit(20)
	f.awaitSome()
	if err := queuetest.Client(t, f.redis.URL).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	f.requireSettled()
}

func TestRedisStopped(t *testing.T) {
	f := startFleet(t)
	f.submit(5)
	f.awaitSome()
	f.redis.Stop()
	if slowest := f.submit(15); slowest > 15*time.Second {
		t.Errorf("a submission without Redis took %s", slowest)
	}
	<-time.After(20 * time.Second) // the duration of the outage
	f.redis.Start()
	f.requireSettled()
}

func TestWorkersShutDownGracefully(t *testing.T) {
	f := startFleet(t)
	f.submit(10)
	f.awaitSome()
	if code := f.workers[0].terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	f.requireSettled()
}
