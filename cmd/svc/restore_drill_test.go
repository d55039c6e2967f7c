package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"partnerbilling/deploy/local"
	"partnerbilling/jobs"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// drill is a database that is restored to an earlier time on another server, while its rail keeps
// all debits.
type drill struct {
	*testing.T
	pair  *local.Pair
	store *models.Store
	site  models.Site
	rail  *railtest.Scripted
	batch models.Batch
}

// newDrill submits a batch of four rows, and then takes the backup: the standby, made by
// pg_basebackup, replays the WAL up to that time only.
func newDrill(t *testing.T) *drill {
	t.Parallel()
	pair, err := local.TempPair(t.Context(), local.Options{Ephemeral: true})
	must(t, err)
	t.Cleanup(func() { must(t, pair.Stop(context.Background())) })
	d := &drill{T: t, pair: pair, rail: railtest.NewScripted()}
	d.open()
	modelstest.Migrate(t, d.store)
	d.site = modelstest.Site(t, d.store)
	for _, customer := range []string{"ada", "bob", "cyd", "dan"} {
		modelstest.Customer(t, d.store, d.site.ID, customer, models.BehaviourPays)
	}
	d.batch = modelstest.Submit(t, d.store, modelstest.Batch(d.site, "batch", "ada", "bob", "cyd", "dan")).Batch
	must(t, pair.CatchUp(t.Context()))
	must(t, pair.Detach(t.Context()))
	return d
}

// open connects to the server that accepts writes.
func (d *drill) open() {
	d.Helper()
	store, err := models.Open(postgres.Config{DSN: d.pair.DatabaseURL()})
	must(d.T, err)
	store.SetKeyring(modelstest.Keyring(d.T, modelstest.MasterKey))
	d.Cleanup(func() { must(d.T, store.Close()) })
	d.store = store
}

// work runs all due tasks of the batch.
func (d *drill) work() {
	d.Helper()
	job := jobs.New(jobs.Config{Store: d.store, Rail: d.rail, Log: slog.New(slog.DiscardHandler)})[models.TaskDebitRows]
	for {
		due, err := d.store.ClaimDue(d.Context(), models.Dispatch{Queue: models.QueueDebits, Limit: 10, InFlight: 10})
		must(d.T, err)
		if len(due) == 0 {
			return
		}
		for _, task := range due {
			must(d.T, job.Run(d.Context(), task))
		}
	}
}

// restore makes the backup the database, as the runbook describes.
func (d *drill) restore() {
	d.Helper()
	d.pair.KillPrimary()
	must(d.T, d.pair.Promote(d.Context()))
	d.open()
	if out := d.admin("restored"); !strings.Contains(out, "held") {
		d.Errorf("svc admin restored: %s", out)
	}
	before := d.rail.Moved()
	d.work()
	if after := d.rail.Moved(); len(after) != len(before) {
		d.Errorf("held rows were debited: %d debits, %d before", len(after), len(before))
	}
	d.want("", "", "", "")
}

func (d *drill) admin(args ...string) string {
	d.Helper()
	env := map[string]string{"SVC_DATABASE_URL": d.pair.DatabaseURL()}
	code, out, stderr := svc(d.T, env, append([]string{"admin"}, args...)...)
	if code != 0 {
		d.Fatalf("svc admin %v: %s", args, stderr)
	}
	return out
}

// want checks the rows' outcomes and the audit. The rail must have debited exactly the succeeded
// rows.
func (d *drill) want(outcomes ...string) {
	d.Helper()
	_, rows, err := d.store.GetBatch(d.Context(), d.site.ID, "batch")
	must(d.T, err)
	got := make([]string, len(rows))
	moved := d.rail.Amounts()
	for i, r := range rows {
		got[i] = string(r.Outcome)
		debited := moved[d.batch.RailKeys().Row(r.RowReference)] > 0
		if debited != (r.Outcome == models.OutcomeSucceeded) && r.Outcome != "" {
			d.Errorf("row %d is %s; debited on the rail: %t", i, r.Outcome, debited)
		}
	}
	if !slices.Equal(got, outcomes) {
		d.Errorf("outcomes %q, want %q", got, outcomes)
	}
	modelstest.Audit(d.T, d.store)
}

func (d *drill) cancel() {
	d.Helper()
	_, _, err := d.store.CancelBatch(d.Context(), d.site.ID, "batch")
	must(d.T, err)
}

// failLastRows makes the bank unavailable for the rows of cyd and dan, so that they stay undebited.
func (d *drill) failLastRows() {
	for _, row := range []string{"row-2", "row-3"} {
		d.rail.Script(d.batch.RailKeys().Row(row), railtest.Unavailable)
	}
}

// After the backup, two rows were debited and the batch was cancelled. With --cancel, the debited
// rows succeed and the others are never debited.
func TestRestoreAfterDebitsAndCancellation(t *testing.T) {
	d := newDrill(t)
	d.failLastRows()
	d.work()
	d.cancel()
	d.want("succeeded", "succeeded", "cancelled", "cancelled")
	d.restore()
	d.admin("restored", "--cancel")
	d.workHeld()
	d.want("succeeded", "succeeded", "cancelled", "cancelled")
}

// After the backup, two rows were debited and two customers were revoked. The operator repeats the
// revocations before --resume.
func TestRestoreAfterDebitsAndRevocation(t *testing.T) {
	d := newDrill(t)
	d.failLastRows()
	d.work()
	for _, customer := range []string{"ada", "cyd"} {
		_, err := d.store.RevokeCustomer(t.Context(), d.site.ID, customer)
		must(t, err)
	}
	d.restore()
	for _, customer := range []string{"ada", "cyd"} {
		_, err := d.store.RevokeCustomer(t.Context(), d.site.ID, customer)
		must(t, err)
	}
	d.admin("restored", "--resume")
	d.workHeld()
	d.want("succeeded", "succeeded", "customerNotActive", "succeeded")
}

// After the backup, the batch was cancelled without debits. With --cancel, nothing is debited.
func TestRestoreAfterCancellation(t *testing.T) {
	d := newDrill(t)
	d.cancel()
	d.want("cancelled", "cancelled", "cancelled", "cancelled")
	d.restore()
	d.admin("restored", "--cancel")
	d.workHeld()
	d.want("cancelled", "cancelled", "cancelled", "cancelled")
	if moved := d.rail.Moved(); len(moved) > 0 {
		t.Errorf("debited %v", moved)
	}
}

// workHeld runs the held tasks, once their leases have ended.
func (d *drill) workHeld() {
	d.Helper()
	modelstest.AdvanceClock(d.T, d.store, models.RowLease*4)
	d.work()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
