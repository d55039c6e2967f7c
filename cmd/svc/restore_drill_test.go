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
	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// drill is a database that is restored to an earlier moment, on another server, while its rail goes on.
type drill struct {
	*testing.T
	pair  *local.Pair
	store *models.Store
	site  models.Site
	rail  *railtest.Scripted
	batch models.Batch
}

// newDrill accepts a batch of four rows, and then makes the backup: the standby, made by pg_basebackup, replays the WAL
// until that moment and no further.
func newDrill(t *testing.T) *drill {
	t.Parallel()
	pair, err := local.TempPair(t.Context())
	must(t, err)
	t.Cleanup(func() { must(t, pair.Stop(context.Background())) })
	d := &drill{T: t, pair: pair, rail: railtest.NewScripted()}
	d.open()
	if _, err := migrations.Up(t.Context(), d.store.DB()); err != nil {
		t.Fatal(err)
	}
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
	store, err := models.Open(d.Context(), models.Config{DSN: d.pair.DatabaseURL()})
	must(d.T, err)
	d.Cleanup(func() { must(d.T, store.Close()) })
	d.store = store
}

// work runs every task of the batch until none is due.
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

// restore brings the backup up as the database, as the runbook says.
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
		d.Errorf("held work was debited: %d debits, %d before", len(after), len(before))
	}
	d.want("", "", "", "")
}

func (d *drill) admin(args ...string) string {
	d.Helper()
	code, out, stderr := svc(d.T, map[string]string{"SVC_DATABASE_URL": d.pair.DatabaseURL()}, append([]string{"admin"}, args...)...)
	if code != 0 {
		d.Fatalf("svc admin %v: %s", args, stderr)
	}
	return out
}

// want checks the rows' outcomes, that the rail has debited the succeeded ones and no others, and the audit.
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
			d.Errorf("row %d is %s; the rail has debited it: %t", i, r.Outcome, debited)
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

// The bank is down for the rows of cyd and dan, so that the cancellation finds them undebited.
func (d *drill) bankDownForTheLast() {
	for _, row := range []string{"row-2", "row-3"} {
		d.rail.Script(d.batch.RailKeys().Row(row), railtest.Unavailable)
	}
}

// Rows were debited after the backup, and the batch was cancelled afterwards: what was debited succeeds, what was not is
// debited no more after --cancel.
func TestRestoreAfterDebitsAndACancellation(t *testing.T) {
	d := newDrill(t)
	d.bankDownForTheLast()
	d.work()
	d.cancel()
	d.want("succeeded", "succeeded", "cancelled", "cancelled")
	d.restore()
	d.admin("restored", "--cancel")
	d.wakeHeld()
	d.want("succeeded", "succeeded", "cancelled", "cancelled")
}

// Rows were debited after the backup, and a customer was revoked afterwards, which the operator repeats.
func TestRestoreAfterDebitsAndARevocation(t *testing.T) {
	d := newDrill(t)
	d.bankDownForTheLast()
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
	d.wakeHeld()
	d.want("succeeded", "succeeded", "customerNotActive", "succeeded")
}

// Nothing was debited after the backup, and the batch was cancelled: nothing is debited after --cancel.
func TestRestoreAfterACancellation(t *testing.T) {
	d := newDrill(t)
	d.cancel()
	d.want("cancelled", "cancelled", "cancelled", "cancelled")
	d.restore()
	d.admin("restored", "--cancel")
	d.wakeHeld()
	d.want("cancelled", "cancelled", "cancelled", "cancelled")
	if moved := d.rail.Moved(); len(moved) > 0 {
		t.Errorf("debited %v", moved)
	}
}

// wakeHeld works once the held tasks look again.
func (d *drill) wakeHeld() {
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
