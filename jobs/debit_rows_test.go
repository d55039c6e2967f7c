package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// billing is a Site with one batch on a scripted rail. The service's clock stands still.
type billing struct {
	*testing.T
	store *models.Store
	site  models.Site
	rail  *railtest.Scripted
	job   *DebitRows
	batch models.Batch
	tasks []models.TaskID
}

const noon = models.Millis(1_800_000_000_000)

func newBilling(t *testing.T) *billing {
	t.Parallel()
	store, scripted := modelstest.Open(t), railtest.NewScripted()
	modelstest.SetClock(t, store, noon)
	t.Cleanup(func() { wantAdmissions(t, scripted) })
	return &billing{T: t, store: store, site: modelstest.Site(t, store), rail: scripted, job: &DebitRows{
		Store: store, Rail: scripted, Permits: NewPermits(64), Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}}
}

// submit submits a batch with a row for each customer. Customers with a name are signed up first.
func (b *billing) submit(customers ...string) {
	b.Helper()
	seen := map[string]bool{"": true}
	for _, c := range customers {
		if !seen[c] {
			modelstest.Customer(b, b.store, b.site.ID, c, models.BehaviourPays)
			seen[c] = true
		}
	}
	done := modelstest.Submit(b, b.store, modelstest.Batch(b.site, "batch", customers...))
	b.batch, b.tasks = done.Batch, done.Tasks
}

// wantAdmissions checks that the rail admitted every call.
func wantAdmissions(t *testing.T, r *railtest.Scripted) {
	t.Helper()
	if n := r.Unadmitted(); n > 0 {
		t.Errorf("%d calls were made without admission", n)
	}
}

func (b *billing) key(row int) string { return b.batch.RailKeys().Row(fmt.Sprint("row-", row)) }

// taskOf returns the task as the queue delivers it.
func (b *billing) taskOf(task models.TaskID) models.Task {
	return models.Task{ID: task, Kind: models.TaskDebitRows, OrganisationID: b.site.OrganisationID}
}

// run runs the batch's tasks once, as a worker does.
func (b *billing) run() {
	b.Helper()
	for _, task := range b.tasks {
		if err := b.job.Run(b.Context(), b.taskOf(task)); err != nil {
			b.Fatalf("run: %v", err)
		}
	}
}

// start runs the batch's first task in the background. The returned function waits for its end.
func (b *billing) start(ctx context.Context) (wait func()) {
	done := make(chan error, 1)
	go func() { done <- b.job.Run(ctx, b.taskOf(b.tasks[0])) }()
	return func() {
		b.Helper()
		if err := <-done; err != nil {
			b.Errorf("run: %v", err)
		}
	}
}

// send sends the debits of rows that a run holds, and drops the answers.
func (b *billing) send(ctx context.Context, run *chunkRun, rows ...int) {
	b.rail.Admit(b.Context(), b.site.OrganisationID, len(rows))
	b.rail.Debit(ctx, debitsOf(run.rowsAt(rows)), func(int, rail.Result) {})
}

// expireLeases expires the leases of all rows, as if their workers had died.
func (b *billing) expireLeases() {
	b.Helper()
	expire := "UPDATE batch_rows SET lease_until = clock_timestamp() WHERE lease_until IS NOT NULL"
	if _, err := b.store.DB().ExecContext(b.Context(), expire); err != nil {
		b.Fatal(err)
	}
}

func (b *billing) advance(by time.Duration) { modelstest.AdvanceClock(b, b.store, by) }

// outcomes returns the outcomes of the rows, or their states while they are open. A correction
// follows an arrow.
func (b *billing) outcomes() []string {
	b.Helper()
	_, rows, err := b.store.GetBatch(b.Context(), b.site.ID, "batch")
	if err != nil {
		b.Fatal(err)
	}
	var all []string
	for _, r := range rows {
		text := string(r.State)
		if r.Outcome != "" {
			text = string(r.Outcome)
		}
		if r.CorrectedOutcome != "" {
			text += "→" + string(r.CorrectedOutcome)
		}
		all = append(all, text)
	}
	return all
}

func (b *billing) want(outcomes ...string) {
	b.Helper()
	if diff := cmp.Diff(outcomes, b.outcomes()); diff != "" {
		b.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

// wantMoved checks that money moved for these rows only, once each, and that the books agree.
func (b *billing) wantMoved(rows ...int) {
	b.Helper()
	want := map[string]models.Amount{}
	for _, r := range rows {
		want[b.key(r)] = models.Amount(100 + r)
	}
	if diff := cmp.Diff(want, b.rail.Amounts()); diff != "" {
		b.Errorf("money moved (-want +got):\n%s", diff)
	}
	modelstest.Audit(b, b.store)
}

func (b *billing) close() {
	b.Helper()
	if _, err := b.store.CloseOverdueBatch(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func TestEveryOutcome(t *testing.T) {
	b := newBilling(t)
	b.submit("pays", "insufficient", "unavailable", "limited", "declines", "refused", "stranger", "revoked")
	for row, reason := range map[int]rail.Reason{
		1: rail.InsufficientFunds, 2: rail.AccountUnavailable, 3: rail.LimitExceeded, 4: rail.DeclinedByCustomer,
		5: rail.Declined,
	} {
		b.rail.Script(b.key(row), railtest.Refuse(reason))
	}
	for _, reference := range []string{"stranger", "revoked"} {
		if _, err := b.store.RevokeCustomer(t.Context(), b.site.ID, reference); err != nil {
			t.Fatal(err)
		}
	}
	b.run()
	b.want("succeeded", "insufficientFunds", "accountUnavailable", "limitExceeded", "declinedByCustomer", "declined",
		"customerNotActive", "customerNotActive")
	b.wantMoved(0)
	batch, rows, err := b.store.GetBatch(t.Context(), b.site.ID, "batch")
	if err != nil || batch.State != models.BatchSettled || batch.SucceededAmount != 100 {
		t.Errorf("batch %+v, %v", batch, err)
	}
	if rows[0].Attempts != 1 || rows[6].Attempts != 0 {
		t.Errorf("attempts %d and %d", rows[0].Attempts, rows[6].Attempts)
	}
}

func TestAThousandRowsThroughFewPermits(t *testing.T) {
	for name, admitted := range map[string]int{"any admission": 0, "three admitted at a time": 3} {
		t.Run(name, func(t *testing.T) {
			b := newBilling(t)
			b.job.Permits = NewPermits(7)
			b.rail.SetMaxAdmitted(admitted)
			customers := make([]string, models.MaxBatchRows)
			for i := range customers {
				customers[i] = fmt.Sprintf("customer-%d", i%50)
			}
			b.submit(customers...)
			var workers sync.WaitGroup
			for _, task := range b.tasks {
				for range 2 { // every task comes twice
					workers.Go(func() {
						if err := b.job.Run(t.Context(), b.taskOf(task)); err != nil {
							t.Error(err)
						}
					})
				}
			}
			workers.Wait()
			if n := len(b.rail.Moved()); n != models.MaxBatchRows {
				t.Errorf("%d debits for %d rows", n, models.MaxBatchRows)
			}
			if n := b.rail.Admitted(b.site.OrganisationID); n != models.MaxBatchRows {
				t.Errorf("%d admissions for %d rows", n, models.MaxBatchRows)
			}
			b.wantPermitsReleased(7, minClaimPermits)
			modelstest.Audit(t, b.store)
		})
	}
}

func (b *billing) wantPermitsReleased(calls, claims int) {
	b.Helper()
	wantPermitsReleased(b.T, b.job.Permits, calls, claims)
}

// wantPermitsReleased checks that all call and claim permits are free.
func wantPermitsReleased(t *testing.T, p *Permits, calls, claims int) {
	t.Helper()
	for _, s := range []struct {
		*semaphore
		n int
	}{{p.calls, calls}, {p.claims, claims}} {
		if s.free != s.n || len(s.held) != 0 {
			t.Errorf("%d of %d permits are free, %v are held", s.free, s.n, s.held)
		}
	}
}

// A worker claims only the rows that it can debit soon. Other workers may claim the rest, and those
// claims see links revoked meanwhile.
func TestRowsAreClaimedOnlyAsPermitsAreReleased(t *testing.T) {
	b := newBilling(t)
	b.job.Permits = NewPermits(8) // and 10 claim permits
	b.rail.SetDefault(railtest.Hang)
	b.submit(slices.Repeat([]string{"ada"}, 60)...)
	wait := b.start(t.Context())
	for row := range 8 {
		b.rail.AwaitCalls(t, b.key(row), railtest.Calls{Debits: 1})
	}
	claimed := slices.DeleteFunc(b.outcomes(), func(s string) bool { return s == "pending" })
	if n := len(claimed); n < 8 || n > 18 {
		t.Errorf("%d rows are claimed, for 8 permits", n)
	}
	b.rail.SetDefault(railtest.Succeed)
	for row := range 8 {
		b.rail.Release(b.key(row))
	}
	wait()
	b.want(slices.Repeat([]string{"succeeded"}, 60)...)
	modelstest.Audit(t, b.store)
	b.wantPermitsReleased(8, 10)
}

// A task ends with its chunk, even if another transaction closed the last row. Otherwise it would
// be dispatched for ever.
func TestTaskOfAClosedChunkEnds(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	if _, _, err := b.store.CancelBatch(t.Context(), b.site.ID, "batch"); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.want("cancelled", "cancelled")
	var left int
	if err := b.store.DB().NewRaw("SELECT count(*) FROM outbox").Scan(t.Context(), &left); err != nil || left != 0 {
		t.Errorf("%d tasks are left, %v", left, err)
	}
}

func TestBankDownThenUp(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	b.rail.Script(b.key(0), railtest.Unavailable, railtest.Unavailable)
	b.run()
	b.want("pending")
	b.run() // not due yet
	if calls := b.rail.Calls(b.key(0)).Debits; calls != 1 {
		t.Errorf("%d debit calls before the next attempt was due", calls)
	}
	b.advance(2 * time.Second)
	b.run()
	b.want("pending")
	b.advance(3 * time.Second)
	b.run()
	b.want("succeeded")
	b.wantMoved(0)
}

func TestAnswerLost(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob", "cyd")
	b.rail.Script(b.key(0), railtest.LoseAnswer)
	b.rail.Script(b.key(1), railtest.LoseRequest)
	b.run()
	b.want("succeeded", "inProgress", "succeeded")
	b.advance(2 * time.Second)
	b.run()
	b.want("succeeded", "succeeded", "succeeded")
	b.wantMoved(0, 1, 2)
}

func TestRailDown(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	b.rail.SetDown(true)
	b.run()
	b.want("pending") // certainly not debited, so that the partner may still cancel it
	b.rail.SetDown(false)
	b.advance(2 * time.Second)
	b.run()
	b.want("succeeded")
	b.wantMoved(0)
}

// The error of a failed claim names the task, since the batch is not known.
func TestFailedClaimNamesItsTask(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	err := b.job.Run(t.Context(), b.taskOf(b.tasks[0]))
	if err == nil || !strings.Contains(err.Error(), "debit rows of task "+b.tasks[0].String()+": ") {
		t.Errorf("the error is %v", err)
	}
}
