package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
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

func TestWorkerDiesBeforeTheRailCall(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	if _, err := b.store.ClaimChunk(t.Context(), b.tasks[0], models.NewLeaseToken(),
		models.Part{Rows: models.ChunkRows}); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.want("inProgress") // the lease has not expired
	b.expireLeases()
	b.run()
	b.want("succeeded")
	b.wantMoved(0)
	if calls := b.rail.Calls(b.key(0)); calls != (railtest.Calls{Debits: 1, Lookups: 1}) {
		t.Errorf("calls %+v, want a look-up before the debit", calls)
	}
}

// A claim whose answer was lost delays its rows only until the claim is abandoned. The next run
// cannot know whether a call was made, so it looks the rows up. Rows of other claims stay leased.
func TestClaimOfUnknownFateIsAbandoned(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob", "cyd")
	lease, lost := models.NewLeaseToken(), models.Part{First: 1, Rows: 1}
	for _, part := range []models.Part{{Rows: 1}, lost, {First: 2, Rows: 1}} {
		if _, err := b.store.ClaimChunk(t.Context(), b.tasks[0], lease, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.store.AbandonClaim(t.Context(), b.tasks[0], models.NewLeaseToken(), lost); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.want("inProgress", "inProgress", "inProgress") // another claim was abandoned
	if err := b.store.AbandonClaim(t.Context(), b.tasks[0], lease, lost); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.want("inProgress", "succeeded", "inProgress")
	b.wantMoved(1)
	if calls := b.rail.Calls(b.key(1)); calls != (railtest.Calls{Debits: 1, Lookups: 1}) {
		t.Errorf("calls %+v, want a look-up before the debit", calls)
	}
}

// Results are recorded over a new connection if the open ones have frozen. No row is called again.
func TestConnectionsFreezeBeforeTheRecord(t *testing.T) {
	b := newBilling(t)
	dsn := modelstest.DSN(t)
	b.store = openStore(t, dsn)
	modelstest.SetClock(t, b.store, noon)
	b.site = modelstest.Site(t, b.store)
	line, throughLine := modelstest.Wire(t, dsn)
	b.job.Store = openStore(t, throughLine)
	b.submit("ada", "bob")
	task := b.taskOf(b.tasks[0])
	task.Rows = 2 // one claim takes all rows
	clock := &manualClock{}
	b.job.Now = clock.now
	b.rail.LimitAdmission()
	done := make(chan error, 1)
	go func() { done <- b.job.Run(t.Context(), task) }()
	b.rail.AwaitAdmitCallers(t, 1)
	line.FreezeOpen()
	b.rail.Allow(2)
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
	b.want("succeeded", "succeeded")
	b.wantMoved(0, 1)
	b.calls(0, railtest.Calls{Debits: 1})
	b.calls(1, railtest.Calls{Debits: 1})
}

func openStore(t *testing.T, dsn string) *models.Store {
	t.Helper()
	store, err := models.Open(postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	store.SetKeyring(modelstest.Keyring(t, modelstest.MasterKey))
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func TestWorkerDiesDuringTheRailCall(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	b.rail.Script(b.key(0), railtest.Hang, railtest.Succeed)
	wait := b.start(t.Context())
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	b.expireLeases() // the worker is frozen: its call hangs
	b.rail.SetDefault(railtest.Succeed)
	b.run()
	b.want("succeeded")
	b.rail.Release(b.key(0)) // the frozen worker's debit arrives under the same key
	wait()
	b.want("succeeded")
	b.wantMoved(0)
}

func TestWorkerDiesBeforeTheRecord(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	chunk, err := b.store.ClaimChunk(t.Context(), b.tasks[0], models.NewLeaseToken(),
		models.Part{Rows: models.ChunkRows})
	if err != nil {
		t.Fatal(err)
	}
	b.rail.Script(b.key(1), railtest.Refuse(rail.InsufficientFunds))
	run := newChunkRun(b.job, b.taskOf(chunk.Task))
	run.addRows(&claim{Chunk: chunk})
	b.send(t.Context(), run, 0, 1)
	b.expireLeases()
	b.run()
	b.want("succeeded", "insufficientFunds")
	b.wantMoved(0)
	if calls := b.rail.Calls(b.key(0)); calls != (railtest.Calls{Debits: 1, Lookups: 1}) {
		t.Errorf("calls %+v", calls)
	}
}

func TestLinkRevokedWhileInDoubt(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	b.rail.Script(b.key(0), railtest.LoseRequest)
	b.rail.Script(b.key(1), railtest.LoseAnswer)
	b.rail.SetDefault(railtest.LoseRequest)
	if _, err := b.store.ClaimChunk(t.Context(), b.tasks[0], models.NewLeaseToken(),
		models.Part{Rows: models.ChunkRows}); err != nil {
		t.Fatal(err)
	}
	b.expireLeases()
	for _, reference := range []string{"ada", "bob"} {
		if _, err := b.store.RevokeCustomer(t.Context(), b.site.ID, reference); err != nil {
			t.Fatal(err)
		}
	}
	b.run()
	b.want("customerNotActive", "customerNotActive")
	b.wantMoved()
	if calls := b.rail.Calls(b.key(0)); calls != (railtest.Calls{Lookups: 1, Cancels: 1}) {
		t.Errorf("calls %+v, want a cancellation of the debit that may be in flight", calls)
	}
}

func TestCancellationAgainstAnAttempt(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob", "cyd")
	b.rail.Script(b.key(0), railtest.Hang)
	b.rail.Script(b.key(1), railtest.Unavailable)
	b.rail.Script(b.key(2), railtest.LoseRequest)
	wait := b.start(t.Context())
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	if _, _, err := b.store.CancelBatch(t.Context(), b.site.ID, "batch"); err != nil {
		t.Fatal(err)
	}
	b.rail.Release(b.key(0))
	wait()
	if got := b.outcomes(); got[0] != "succeeded" || got[1] != "cancelled" || got[2] != "inProgress" {
		t.Errorf("outcomes %v", got)
	}
	b.advance(2 * time.Second)
	b.run()
	b.want("succeeded", "cancelled", "cancelled") // no debit begins after a cancellation: the rail closes the third row
	b.wantMoved(0)
}

func TestDeadlineClosesOnTheRail(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob", "cyd")
	b.rail.Script(b.key(0), railtest.Unavailable)
	b.rail.Script(b.key(1), railtest.LoseRequest)
	b.run()
	b.want("pending", "inProgress", "succeeded")
	b.advance(models.SettleWithin - models.LastAttemptBefore)
	b.run()
	b.want("timedOut", "timedOut", "succeeded")
	b.wantMoved(2)
	b.rail.SetDefault(railtest.Succeed)
	if calls := b.rail.Calls(b.key(0)); calls != (railtest.Calls{Debits: 1, Cancels: 1}) {
		t.Errorf("calls %+v, want a cancellation: only the rail closes a row that was called, whatever it answered",
			calls)
	}
	if calls := b.rail.Calls(b.key(1)); calls.Debits != 1 || calls.Cancels != 1 {
		t.Errorf("calls %+v, want a cancellation: no debit begins in the last half hour", calls)
	}
}

func TestDeadlineAgainstALateAnswer(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	b.rail.Script(b.key(0), railtest.Hang)
	b.rail.Script(b.key(1), railtest.Hang)
	ctx, die := context.WithCancel(t.Context())
	defer die()
	wait := b.start(ctx)
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	b.rail.AwaitCalls(t, b.key(1), railtest.Calls{Debits: 1})
	b.advance(models.SettleWithin)
	b.close()
	b.want("unconfirmed", "unconfirmed")

	b.rail.Release(b.key(0)) // the worker still waits, and its answer corrects the row
	b.rail.Script(b.key(1), railtest.Refuse(rail.InsufficientFunds))
	b.rail.Release(b.key(1))
	wait()
	b.want("unconfirmed→succeeded", "unconfirmed")
	b.run()
	b.want("unconfirmed→succeeded", "unconfirmed→insufficientFunds")
	b.wantMoved(0)
}

func TestRailGoneUntilAfterTheDeadline(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	b.rail.Script(b.key(0), railtest.LoseAnswer)
	b.rail.Script(b.key(1), railtest.Hang)
	ctx, cancel := context.WithCancel(t.Context())
	chunk, err := b.store.ClaimChunk(t.Context(), b.tasks[0], models.NewLeaseToken(),
		models.Part{Rows: models.ChunkRows})
	if err != nil {
		t.Fatal(err)
	}
	run := newChunkRun(b.job, b.taskOf(chunk.Task))
	run.addRows(&claim{Chunk: chunk})
	cancel()
	b.send(t.Context(), run, 0)
	b.send(ctx, run, 1)
	b.rail.SetDown(true)
	b.expireLeases()
	for _, by := range []time.Duration{0, models.SettleWithin - models.LastAttemptBefore, time.Minute} {
		b.advance(by)
		b.run()
		b.want("inProgress", "inProgress")
	}
	b.advance(models.LastAttemptBefore)
	b.close()
	b.want("unconfirmed", "unconfirmed")
	b.run()
	b.want("unconfirmed", "unconfirmed")
	b.rail.SetDown(false)
	b.advance(10 * time.Minute)
	b.run()
	b.want("unconfirmed→succeeded", "unconfirmed→timedOut")
	b.wantMoved(0)
}

func TestClockStepDuringAnAttempt(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	b.rail.Script(b.key(0), railtest.Hang)
	wait := b.start(t.Context())
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	b.advance(12 * time.Hour) // leases go by real time: no other worker takes the row
	b.run()
	if calls := b.rail.Calls(b.key(0)); calls.Lookups != 0 {
		t.Error("a clock step took a living worker's row")
	}
	b.rail.Release(b.key(0))
	wait()
	b.want("succeeded")
	b.wantMoved(0)
}

func TestShutdownReleasesUnsentRows(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob", "cyd")
	b.job.Permits = NewPermits(1)
	b.rail.SetDefault(railtest.Hang)
	ctx, shutdown := context.WithCancel(t.Context())
	wait := b.start(ctx)
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	shutdown()
	b.rail.SetDefault(railtest.Succeed)
	b.rail.Release(b.key(0)) // the run waits for calls in flight
	wait()
	b.want("succeeded", "pending", "pending")
	b.run()
	b.want("succeeded", "succeeded", "succeeded")
	b.wantMoved(0, 1, 2)
}

func TestShutdownBeforeTheClaim(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	bounds := models.Dispatch{InFlight: 1}
	if _, err := b.store.ClaimTasks(t.Context(), b.tasks, bounds, bounds); err != nil {
		t.Fatal(err)
	}
	ctx, shutdown := context.WithCancel(t.Context())
	shutdown()
	b.start(ctx)()
	again, err := b.store.ClaimTasks(t.Context(), b.tasks, bounds, bounds) // at once, not after a lease
	if err != nil || len(again) != 1 {
		t.Errorf("due again: %v, %v", again, err)
	}
	b.want("pending")
}

func TestLinkRevokedBeforeALaterWave(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	b.job.Permits = NewPermits(1)
	began, calls := time.Now(), atomic.Int64{}
	b.job.Now = func() time.Time { // advances with each call, so that no row is fresh
		return began.Add(time.Duration(calls.Add(1)) * 2 * recheckAfter)
	}
	b.rail.SetDefault(railtest.Hang)
	wait := b.start(t.Context())
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	if _, err := b.store.RevokeCustomer(t.Context(), b.site.ID, "bob"); err != nil {
		t.Fatal(err)
	}
	b.rail.SetDefault(railtest.Succeed)
	b.rail.Release(b.key(0))
	wait()
	b.want("succeeded", "customerNotActive")
	b.wantMoved(0)
}
