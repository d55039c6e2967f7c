package jobs

import (
	"testing"
	"time"

	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func (b *billing) pause() {
	b.Helper()
	if err := b.store.PauseDebits(b.Context(), b.site.OrganisationID); err != nil {
		b.Fatal(err)
	}
}

// resume ends the pause, and returns the task that wakes the postponed ones.
func (b *billing) resume() models.Task {
	b.Helper()
	task, err := b.store.ResumeDebits(b.Context(), b.site.OrganisationID)
	if err != nil {
		b.Fatal(err)
	}
	return models.Task{ID: task, Kind: models.TaskWakeDebits, OrganisationID: b.site.OrganisationID}
}

func (b *billing) wake(task models.Task) {
	b.Helper()
	if err := (&WakeDebits{Store: b.store}).Run(b.Context(), task); err != nil {
		b.Fatal(err)
	}
}

// due returns the number of debit tasks that a dispatcher would send now.
func (b *billing) due() (n int) {
	b.Helper()
	if err := b.store.DB().NewRaw(`
SELECT count(*) FROM outbox WHERE queue = 'debits' AND dispatched_at IS NULL AND available_at <= svc_now()`).
		Scan(b.Context(), &n); err != nil {
		b.Fatal(err)
	}
	return n
}

// A pause makes no debit call, and a resumption makes the postponed tasks due.
func TestPausedDebitsWaitForTheResumption(t *testing.T) {
	b := newBilling(t)
	b.pause()
	b.submit("ada", "bob")
	b.run()
	b.want("pending", "pending")
	if n := b.due(); n != 0 {
		t.Errorf("%d tasks are due during the pause", n)
	}
	b.wantCalls(0, railtest.Calls{})
	b.advance(models.SettleWithin - models.LastAttemptBefore - time.Minute)
	if n := b.due(); n != 0 {
		t.Errorf("%d tasks are due before the end of the time for attempts", n)
	}
	b.wake(b.resume())
	if n := b.due(); n != 1 {
		t.Fatalf("%d tasks are due after the resumption, want 1", n)
	}
	b.run()
	b.want("succeeded", "succeeded")
	b.wantMoved(0, 1)
	b.wantCalls(0, railtest.Calls{Debits: 1})
}

// A pause that begins while claimed rows wait for admission releases them.
func TestPauseWhileWaitingForAdmission(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	wait := b.startAwaitingAdmission(t.Context())
	b.pause()
	b.rail.Allow(2)
	wait()
	b.want("pending", "pending")
	b.wantMoved()
	b.wantCalls(0, railtest.Calls{})
	if _, rows, err := b.store.GetBatch(t.Context(), b.site.ID, "batch"); err != nil || rows[0].Attempts != 0 {
		t.Errorf("%d attempts without a debit call, %v", rows[0].Attempts, err)
	}
	if n := b.due(); n != 0 {
		t.Errorf("%d tasks are due during the pause", n)
	}
	b.wantPermitsReleased(64, 80)
}

// Rows in doubt are looked up during a pause. What the rail has never seen is not debited.
func TestRowsInDoubtAreLookedUpDuringAPause(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	_, err := b.store.ClaimChunk(t.Context(), b.tasks[0], models.NewLeaseToken(), models.Part{Rows: models.ChunkRows})
	if err != nil {
		t.Fatal(err)
	}
	debited := newChunkRun(b.job, b.taskOf(b.tasks[0]))
	debited.rows[0] = &rowRun{row: models.ClaimedRow{RailKey: b.key(0), Amount: 100, Account: b.account("ada")},
		payee: payee{b.site.OrganisationID, b.site.ID, "AUD"}}
	b.send(t.Context(), debited, 0)
	b.expireLeases()
	b.pause()
	b.run()
	b.want("succeeded", "inProgress")
	b.wantCalls(0, railtest.Calls{Debits: 1, Lookups: 1})
	b.wantCalls(1, railtest.Calls{Lookups: 1})
	b.resume()
	b.advance(maxRetryAfter)
	b.run()
	b.want("succeeded", "succeeded")
	b.wantMoved(0, 1)
}

// account returns the account of a customer's link, as a claim reads it.
func (b *billing) account(customer string) models.DebitAccount {
	b.Helper()
	link, err := b.store.Customer(b.Context(), b.site.ID, customer)
	if err != nil {
		b.Fatal(err)
	}
	return models.DebitAccount{LinkID: link.ID, Linked: true, AgreementID: modelstest.Agreement(link)}
}

// Paused rows settle by their deadline without the rail; a resumption afterwards changes nothing.
func TestPausedRowsCloseAtTheirDeadline(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	b.pause()
	b.run()
	b.advance(models.SettleWithin - models.LastAttemptBefore)
	if _, err := b.store.CloseUnsentRows(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.want("timedOut")
	b.wake(b.resume())
	b.run()
	b.want("timedOut")
	b.wantMoved()
}

// A row with an earlier debit call is cancelled on the rail in its last half hour, although its
// organisation's debits are paused.
func TestPausedRowsWithACallAreClosedOnTheRail(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	b.rail.SetDown(true)
	b.run()
	b.rail.SetDown(false)
	b.pause()
	b.advance(time.Hour)
	b.run()
	b.advance(models.SettleWithin - models.LastAttemptBefore - time.Hour)
	if n := b.due(); n != 1 {
		t.Fatalf("%d tasks are due in the last half hour, want 1", n)
	}
	b.run()
	b.want("timedOut")
	b.wantMoved()
}

// A cancelled batch does not wait for the end of the pause, although a failover may have lost calls
// about its rows, so that only the rail can cancel them.
func TestPausedRowsAreCancelledOnTheRailAfterALoss(t *testing.T) {
	for name, begin := range map[string]func(*billing){
		"cancelled after the postponement": func(b *billing) {
			b.park()
			if n := b.due(); n != 0 {
				b.Errorf("%d tasks are due during the pause", n)
			}
			b.cancelBatch()
		},
		"cancelled before it": func(b *billing) { b.cancelBatch(); b.park() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBilling(t)
			b.submit("ada", "bob")
			modelstest.Backup(t, b.store)()
			b.pause()
			begin(b)
			b.want("pending", "pending")
			if n := b.due(); n != 1 {
				t.Fatalf("%d tasks are due after the cancellation, want 1", n)
			}
			b.run()
			b.want("cancelled", "cancelled")
			b.wantMoved()
			b.wantCalls(0, railtest.Calls{Lookups: 1, Cancels: 1})
			modelstest.Audit(t, b.store)
		})
	}
}

// The cancellation of restored work does not wait for the end of a pause. Batches that were
// accepted after the restore keep waiting for it.
func TestPausedRowsOfARestoreAreCancelled(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	b.pause()
	b.park()
	if _, err := b.store.BeginEpoch(t.Context()); err != nil {
		t.Fatal(err)
	}
	restored := b.tasks
	b.tasks = modelstest.Submit(t, b.store, modelstest.Batch(b.site, "accepted later", "ada")).Tasks
	b.park()
	if n := b.due(); n != 0 {
		t.Fatalf("%d tasks are due during the pause", n)
	}
	b.wake(b.cancelRestored())
	b.tasks = restored
	if n := b.due(); n != 1 {
		t.Fatalf("%d tasks are due after the cancellation, want that of the restored batch alone", n)
	}
	b.run()
	b.want("cancelled")
	b.wantCalls(0, railtest.Calls{Lookups: 1, Cancels: 1})
	b.wantMoved()
}

// A task that is postponed while restored work is being cancelled is due after the cancellation.
func TestPostponementMeetsCancellationOfARestore(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	b.pause()
	if _, err := b.store.BeginEpoch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.ResumeRestored(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.postponeDuring("UPDATE database_epoch SET cancelled_before = epoch")
	if n := b.due(); n != 1 {
		t.Fatalf("%d tasks are due after the cancellation, want 1", n)
	}
	b.run()
	b.want("cancelled")
}

// cancelRestored cancels the restored work, and returns the task that wakes the postponed ones.
func (b *billing) cancelRestored() models.Task {
	b.Helper()
	if _, err := b.store.CancelRestored(b.Context()); err != nil {
		b.Fatal(err)
	}
	task := models.Task{Kind: models.TaskWakeDebits, OrganisationID: b.site.OrganisationID}
	if err := b.store.DB().NewRaw("SELECT id FROM outbox WHERE kind = ?", task.Kind).
		Scan(b.Context(), &task.ID); err != nil {
		b.Fatal(err)
	}
	return task
}

// A task that is postponed while its batch is being cancelled is due after the cancellation.
func TestPostponementMeetsCancellation(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	modelstest.Backup(t, b.store)()
	b.pause()
	b.postponeDuring("SELECT FROM batches FOR UPDATE", "UPDATE batches SET cancelled_at = svc_now()")
	if n := b.due(); n != 1 {
		t.Fatalf("%d tasks are due after the cancellation, want 1", n)
	}
	b.run()
	b.want("cancelled")
}

// postponeDuring runs the task of the batch while a transaction of the statements is open, and
// commits the transaction once the run waits for its locks. The run must leave the row pending.
func (b *billing) postponeDuring(statements ...string) {
	b.Helper()
	tx, err := b.store.DB().BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer tx.Rollback()
	for _, statement := range statements {
		if _, err := tx.ExecContext(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	wait := b.start(b.Context()) // does not see the statements' effect yet
	modelstest.AwaitLockWait(b.T, b.store)
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
	wait()
	b.want("pending")
}

// park parks the batch's tasks, as a worker that stops does.
func (b *billing) park() {
	b.Helper()
	for _, task := range b.tasks {
		if err := b.store.ParkChunk(b.Context(), task); err != nil {
			b.Fatal(err)
		}
	}
}

// A task that is postponed while the debits are being resumed is postponed before the resumption,
// whose task finds it, or not at all.
func TestPostponementMeetsResumption(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	b.pause()
	b.postponeDuring("DELETE FROM debit_pauses")
	if n := b.due(); n != 1 {
		t.Fatalf("%d tasks are due after the resumption, want 1", n)
	}
	b.run()
	b.want("succeeded")
}

// The task of a resumption continues after a crash between its steps.
func TestResumptionContinuesAfterACrash(t *testing.T) {
	b := newBilling(t)
	b.pause()
	b.submit("ada")
	for _, reference := range []string{"second", "third"} {
		b.tasks = append(b.tasks, modelstest.Submit(t, b.store, modelstest.Batch(b.site, reference, "ada")).Tasks...)
	}
	b.run()
	task := b.resume()
	if n, err := b.store.WakeDebits(t.Context(), task.ID, 2); n != 2 || err != nil {
		t.Fatalf("the first step woke %d tasks, %v", n, err)
	}
	if n := b.due(); n != 2 {
		t.Errorf("%d tasks are due after one step of two, want 2", n)
	}
	b.wake(task)
	if n := b.due(); n != 3 {
		t.Errorf("%d tasks are due, want 3", n)
	}
	b.wake(task) // comes again after its end
	b.run()
	b.want("succeeded")
}
