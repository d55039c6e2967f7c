package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"partnerbilling/api/client"
	"partnerbilling/deploy/local"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// startPooler starts a PgBouncer in transaction mode with its default reset query, and returns the
// database's URL through it. It skips the test if PgBouncer is not installed.
func startPooler(t *testing.T, dsn string, size int) string {
	t.Helper()
	servers, err := local.Temp(t.Context(), local.Options{
		WithoutRedis: true, Ephemeral: true, PoolerOf: dsn, PoolSize: size,
	})
	if missing := (*local.MissingError)(nil); errors.As(err, &missing) {
		fmt.Fprintln(os.Stderr, "SKIPPED: the tests of a pooler need PgBouncer;",
			"`sh deploy/local/fetch.sh pgbouncer` installs it")
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = servers.Stop(t.Context()) })
	return servers.DatabaseURL
}

// alterRole gives the role of a database URL the settings of the service in that database.
func alterRole(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, statement := range postgres.SessionSettings().Alter(conn.Config().User, conn.Config().Database) {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// The service runs through a pooler in transaction mode that has fewer sessions than the service
// has connections: submissions, debits, payments, webhooks, cancellations, lists and exports.
func TestPooler(t *testing.T) {
	if testing.Short() {
		t.Skip("a drill with whole servers")
	}
	t.Parallel()
	dsn := modelstest.DSN(t)
	alterRole(t, dsn)
	f := newFleet(t, dsn, "SVC_DATABASE_URL", startPooler(t, dsn, 4), "SVC_DATABASE_POOLER", "transaction")
	f.startAPI()
	f.startWorker()
	f.startWorker()
	f.testEveryNoun()
	f.drainTogether(8)
	if code, out, stderr := svc(t, f.env, "admin", "audit"); code != 0 {
		t.Errorf("the audit found:\n%s%s", out, stderr)
	}
}

// testEveryNoun calls every operation through the API, and awaits what follows.
func (f *fleet) testEveryNoun() {
	f.Helper()
	site, events := f.site.ID.String(), receiveEvents(f.T, f.api)
	testCustomers(f.T, f.api, site)
	testBatches(f.T, f.api, site)
	testPayments(f.T, f.api, site)
	testMovements(f.T, f.api, site)
	testWebhooks(f.T, f.api, site, events)
}

// drainTogether submits n batches at the same time and waits until their rows have succeeded.
func (f *fleet) drainTogether(n int) {
	f.Helper()
	modelstest.Customer(f.T, f.store, f.site.ID, "payer", models.BehaviourPays)
	var group errgroup.Group
	for i := range n {
		group.Go(func() error {
			batch := client.Batch{BatchReference: fmt.Sprint("together ", i)}
			for row := range batchRows {
				batch.Rows = append(batch.Rows, client.Row{
					CustomerReference: "payer", RowReference: fmt.Sprint(row), Amount: 1,
				})
			}
			if _, err := f.api.SubmitBatch(f.Context(), f.site.ID.String(), batch); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(f.Context(), awaitTimeout)
			defer cancel()
			settled, err := f.api.AwaitBatch(ctx, f.site.ID.String(), batch.BatchReference)
			if err == nil && settled.Counts.Succeeded != batchRows {
				err = fmt.Errorf("%s: %+v", batch.BatchReference, settled.Counts)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		f.Error(err)
	}
}

// Behind a pooler the role must have the settings of sessions, and without SVC_DATABASE_POOLER the
// service does not start: both errors say what to do.
func TestPoolerNeedsConfiguration(t *testing.T) {
	t.Parallel()
	dsn := modelstest.DSN(t)
	env := map[string]string{
		"SVC_ENV": "sandbox", "SVC_DATABASE_URL": startPooler(t, dsn, 1), "SVC_REDIS_URL": "redis://127.0.0.1:1",
		"SVC_LISTEN": "127.0.0.1:0", "SVC_MASTER_KEY": modelstest.MasterKey,
	}
	for _, step := range []struct {
		pooler, want string
		then         func()
	}{
		{"off", "SVC_DATABASE_POOLER=transaction", nil},
		{"transaction", "SET plan_cache_mode = 'force_generic_plan'", func() { alterRole(t, dsn) }},
		{"transaction", "RECONNECT", nil},
	} {
		code, _, stderr := svc(t, with(env, "SVC_DATABASE_POOLER", step.pooler), "worker")
		if last := stderr[strings.LastIndex(strings.TrimSpace(stderr), "\n")+1:]; code == 0 ||
			!strings.Contains(last, step.want) {
			t.Errorf("pooler %s: exit code %d, want an error with %q: %s", step.pooler, code, step.want, last)
		}
		if step.then != nil {
			step.then()
		}
	}
}
