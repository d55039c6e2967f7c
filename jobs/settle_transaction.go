package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// SettleTransaction takes one customer's payment to its end: it claims the transaction, asks the rail as it would for a row
// of a batch, and writes what it has learnt. A crash at any point leaves a transaction whose lease runs out and which the
// next run begins with a look-up, under the same key.
type SettleTransaction struct {
	Store *models.Store
	Rail  rail.Rail
	// Permits bounds the rail calls of this process, those of batches included.
	Permits *Permits
	// Now is the process's clock; it measures spans, and decides nothing that Postgres decides.
	Now func() time.Time
	// Notify is told of the task that tells the partner. It may be nil.
	Notify  func([]models.TaskID)
	Metrics *Metrics
	Log     *slog.Logger

	doubts doubts
}

// Run handles one task.
func (s *SettleTransaction) Run(ctx context.Context, task models.Task) error {
	// What is written outlives the task.ID's own time, as in DebitRows.
	recordCtx, cancel := withGrace(ctx, callGrace+recordWithin)
	defer cancel()
	if ctx.Err() != nil { // a shutdown before anything began: somebody else's, at once
		return s.Store.ParkTransaction(recordCtx, task.ID)
	}
	t, err := s.Store.ClaimTransaction(recordCtx, task.ID, models.NewLeaseToken())
	switch {
	case errors.Is(err, models.ErrNotFound):
		return s.Store.FinishTask(recordCtx, task.ID)
	case err != nil:
		return fmt.Errorf("jobs: settle transaction: %w", err)
	case !t.Held:
		return s.Store.ParkTransaction(recordCtx, task.ID)
	}
	run := &settlement{job: s, transaction: t, heldAt: s.Now()}
	ctx, recordCtx = models.WithTraceID(ctx, t.TraceID), models.WithTraceID(recordCtx, t.TraceID)
	if err := run.record(recordCtx, run.settle(ctx)); err != nil {
		return fmt.Errorf("jobs: settle transaction %s: %w", t.ID, err)
	}
	return nil
}

// settlement is one run of a transaction.
type settlement struct {
	job         *SettleTransaction
	transaction models.ClaimedTransaction
	heldAt      time.Time // when the lease was last seen to be ours
	lost        bool      // the lease is another's now
}

// settle takes the transaction as far as it goes now. A transaction is decided as a row of a batch whose customer is linked.
func (s *settlement) settle(ctx context.Context) models.TransactionResult {
	row := s.row()
	if row.row.Amount == 0 && !row.row.InDoubt && s.transaction.ClosingAs == "" { // discounts have left nothing to debit
		return models.TransactionResult{Status: models.TransactionSettled}
	}
	callCtx, stopCalls := withGrace(ctx, callGrace)
	defer stopCalls()
	defer s.live(callCtx)()
	call, result := row.first()
	for call != callNone {
		var made bool
		if call, result, made = s.step(ctx, callCtx, row, call); !made {
			result := s.resultOf(row, row.released())
			result.RetryAfter = 0 // the next worker can make the call
			return result
		}
	}
	return s.resultOf(row, result)
}

// row is the transaction as a row of a batch that the rail must close: Failed is only what the rail confirms. Nothing is
// debited where nothing is to be: a payment that discounts have left nothing of, or a payment intent that is closing, is
// only cancelled on the rail.
func (s *settlement) row() *rowRun {
	t := s.transaction
	row := &rowRun{
		phase: t.Phase, payee: payee{t.OrganisationID, t.SiteID, t.Currency},
		row: models.ClaimedRow{
			RailKey: t.RailKey(), Amount: t.Charge, InDoubt: t.InDoubt || t.ClosingAs != "", Forgotten: t.Forgotten,
			Account: models.DebitAccount{Linked: true, CustomerID: t.Party.CustomerID, AgreementID: t.Party.AgreementID},
		},
	}
	if t.Charge == 0 {
		row.phase = models.PhaseClose
	}
	return row
}

// step makes a call, once there are a permit and a turn on the rail for it, or finds that a debit may not be made any more, and tells what
// follows. False: the context ended first, or the transaction may be another worker's.
func (s *settlement) step(ctx, callCtx context.Context, row *rowRun, call railCall) (next railCall, result models.RowResult, made bool) {
	if s.job.Permits.Take(ctx, atOnce, 1) == 0 {
		return call, result, false
	}
	defer s.job.Permits.Give(atOnce.organisation, 1)
	if s.job.Rail.Admit(ctx, call.admittedFor(s.transaction.OrganisationID), 1) == 0 || call == callDebit && !s.confirmed(callCtx, row) {
		return call, result, false
	}
	if call == callDebit && !row.mayDebit() {
		next, result = row.debitOrClose()
	} else {
		next, result = s.next(row, call, s.ask(callCtx, row, call))
	}
	return next, result, true
}

// next decides what follows a rail's answer. A payment that the database has lost is what the rail says that it was.
func (s *settlement) next(row *rowRun, call railCall, answer rail.Result) (railCall, models.RowResult) {
	if s.transaction.ClosingAs != "" && answer.Held.Currency == s.transaction.Currency && answer.Held.Amount <= s.transaction.Amount {
		row.row.Amount, row.row.Account.AgreementID = answer.Held.Amount, answer.Held.AgreementID
	}
	return row.next(call, answer)
}

// confirmed makes sure, right before the rail is asked for money, that the transaction is still this worker's, and looks whether
// its time is over.
func (s *settlement) confirmed(ctx context.Context, row *rowRun) bool {
	if s.job.Now().Sub(s.heldAt) < freshFor {
		return true
	}
	phase, err := s.job.Store.HoldTransaction(ctx, s.transaction)
	if s.lost = errors.Is(err, models.ErrNotFound); err != nil && !s.lost {
		s.job.Log.WarnContext(ctx, "cannot confirm the lease", "transaction", s.transaction.ID, "error", err)
	}
	row.late = err == nil && phase != models.PhaseAttempt
	return err == nil
}

// ask makes one call, which has a permit and a turn on the rail.
func (s *settlement) ask(ctx context.Context, row *rowRun, call railCall) rail.Result {
	began := s.job.Now()
	var answer rail.Result
	report := func(_ int, r rail.Result) { answer = r }
	key := row.row.RailKey
	switch call {
	case callDebit:
		s.job.Rail.Debit(ctx, []rail.Debit{row.debit()}, report)
	case callLookup:
		s.job.Rail.Lookup(ctx, []string{key}, report)
	case callCancel:
		s.job.Rail.Cancel(ctx, []string{key}, report)
	case callNone:
	}
	now := s.job.Now()
	s.job.Metrics.railCall(call, answer.Status, now.Sub(began))
	s.job.doubts.note(ctx, s.job.Log, now, key, call, answer)
	return answer
}

// live shows that the worker lives, while it waits for turns and answers, until the returned function is called.
func (s *settlement) live(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var beats sync.WaitGroup
	beats.Go(func() { s.hold(ctx) })
	return func() { cancel(); beats.Wait() }
}

// hold extends the lease until the context ends. A beat that fails is made up by the next.
func (s *settlement) hold(ctx context.Context) {
	beat := time.NewTicker(holdEvery)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
		_, err := s.job.Store.HoldTransaction(ctx, s.transaction)
		if err != nil && !errors.Is(err, models.ErrNotFound) && ctx.Err() == nil {
			s.job.Log.WarnContext(ctx, "cannot extend the lease", "transaction", s.transaction.ID, "error", err)
		}
	}
}

// The growth of the waits ends early: a customer is waiting.
const (
	lastAttemptGrowth = 4 // tries; about 5 s
	lastCloseGrowth   = 9 // about 40 s
)

// resultOf turns what is known of a row into what that means for a transaction. A transaction whose outcome the rail
// cannot tell stays pending until an operator decides.
func (s *settlement) resultOf(row *rowRun, r models.RowResult) models.TransactionResult {
	result := models.TransactionResult{
		Release: r.Release, Calls: r.Calls, RailsWord: r.RailsWord, Called: r.Called, Alert: r.Alert,
		Found: models.FoundPayment{AgreementID: row.row.Account.AgreementID, Charge: row.row.Amount},
	}
	switch r.Outcome {
	case "":
		growth := lastAttemptGrowth
		if s.transaction.Phase != models.PhaseAttempt {
			growth = lastCloseGrowth
		}
		result.RetryAfter = retryAfter(min(s.transaction.Deferrals, growth), rand.Float64()) //nolint:gosec // jitter, not a secret
	case models.OutcomeUnconfirmed:
		result.RetryAfter = lastRetryAfter
		s.job.Log.Error("the rail cannot tell what became of a payment", "alert", r.Alert, "key", r.RailKey)
	case models.OutcomeSucceeded:
		result.Status = models.TransactionSettled
	case models.OutcomeTimedOut:
		result.Status = s.endUnpaid()
	default:
		result.Status, result.Reason = models.TransactionDeclined, r.Outcome
	}
	return result
}

// endUnpaid is how a transaction ends that was not debited and never will be.
func (s *settlement) endUnpaid() models.TransactionStatus {
	switch t := s.transaction; {
	case t.ClosingAs != "":
		return t.ClosingAs
	case t.Charge == 0:
		return models.TransactionSettled
	default:
		return models.TransactionFailed
	}
}

// record writes what is known.
func (s *settlement) record(ctx context.Context, result models.TransactionResult) error {
	if s.lost {
		return nil // it is another worker's, and so is its task
	}
	done, err := s.job.Store.FinishTransaction(ctx, s.transaction, result)
	if err != nil || !done.Ended {
		return err
	}
	s.job.Metrics.transactionEnded(result.Status)
	if s.job.Notify != nil && !done.Task.IsZero() {
		s.job.Notify([]models.TaskID{done.Task})
	}
	return nil
}
