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
	"partnerbilling/models/logs"
	"partnerbilling/models/tracing"
)

// SettleTransaction is the job that settles one checkout payment. It claims the transaction, calls
// the rail as for a row of a batch, and records the result. After a crash at any point the lease
// expires, and the next run first asks the rail about the same key.
type SettleTransaction struct {
	Store *models.Store
	Rail  rail.Rail
	// Permits bounds the rail calls of this process, for payments and batches together.
	Permits *Permits
	// Now is the clock of the process. It measures durations only: Postgres decides what is due.
	Now func() time.Time
	// Notify is called with the task that delivers the webhook event. It must not block. If it is
	// nil, the delivery starts when a dispatcher polls the outbox.
	Notify  func([]models.TaskID)
	Metrics *Metrics
	Tracer  *tracing.Tracer
	Log     *slog.Logger

	railLog railLog
}

// Run implements queue.Job.
func (s *SettleTransaction) Run(ctx context.Context, task models.Task) error {
	// As in DebitRows.Run, claims and records go on after ctx has ended.
	recordCtx, cancel := withGrace(ctx, callGrace+recordTimeout)
	defer cancel()
	if ctx.Err() != nil { // a shutdown: another worker can take the task at once
		return s.Store.ParkTransaction(recordCtx, task.ID)
	}
	lease := models.NewLeaseToken()
	t, err := s.Store.ClaimTransaction(recordCtx, task.ID, lease)
	switch {
	case errors.Is(err, models.ErrNotFound):
		return s.Store.FinishTask(recordCtx, task.ID)
	case err != nil:
		// Postgres may have made the claim. No rail call was made, so the next run may claim the
		// transaction at once.
		err = errors.Join(err, s.Store.AbandonTransaction(recordCtx, task.ID, lease))
		return fmt.Errorf("jobs: settle transaction: %w", err)
	case !t.Claimed:
		return s.Store.ParkTransaction(recordCtx, task.ID)
	}
	run := &settlement{job: s, transaction: t, leaseCheckedAt: s.Now()}
	ctx, recordCtx = withPayment(ctx, t), withPayment(recordCtx, t)
	if err := run.record(recordCtx, run.settle(ctx)); err != nil {
		return fmt.Errorf("jobs: settle transaction %s: %w", t.ID, err)
	}
	return nil
}

// withPayment returns a context whose log records carry the ids of the transaction.
func withPayment(ctx context.Context, t models.ClaimedTransaction) context.Context {
	attrs := []slog.Attr{slog.Any(logs.SiteID, t.SiteID), slog.Any(logs.IntentID, t.IntentID)}
	if !t.ID.IsZero() {
		attrs = append(attrs, slog.Any(logs.TransactionID, t.ID))
	}
	return logs.With(models.WithTraceID(ctx, t.TraceID), attrs...)
}

// settlement is one run of a transaction.
type settlement struct {
	job            *SettleTransaction
	transaction    models.ClaimedTransaction
	leaseCheckedAt time.Time // the process's time right after the claim
	lost           bool      // the transaction has ended, or another worker or an operator holds it
}

// settle makes the rail calls that the transaction needs, and returns the result. It decides as for
// a batch row of a linked customer.
func (s *settlement) settle(ctx context.Context) models.TransactionResult {
	row := s.row()
	// Discounts may leave nothing to debit.
	if row.row.Amount == 0 && !row.row.InDoubt && s.transaction.ClosingAs == "" {
		return models.TransactionResult{Status: models.TransactionSettled, Calls: row.calls()}
	}
	callCtx, stopCalls := withGrace(ctx, callGrace)
	defer stopCalls()
	defer s.startHeartbeat(callCtx)()
	call, result := row.first()
	for call != callNone {
		var ok bool
		if call, result, ok = s.step(ctx, callCtx, row, call); !ok {
			result := s.resultOf(ctx, row, row.released())
			result.RetryAfter = 0 // the next worker can make the call
			return result
		}
	}
	return s.resultOf(ctx, row, result)
}

// row returns the transaction in the form of a batch row. Its field certain is false, so that only
// the rail can close the row: a failed transaction needs the rail's confirmation. A charge of zero
// is late from the start, and a payment intent that is closing is in doubt. Both are never debited,
// only cancelled on the rail.
func (s *settlement) row() *rowRun {
	t := s.transaction
	return &rowRun{
		phase: t.Phase, late: t.Charge == 0, payee: payee{t.OrganisationID, t.SiteID, t.Currency},
		row: models.ClaimedRow{
			RailKey: t.RailKey(), Amount: t.Charge, InDoubt: t.InDoubt || t.ClosingAs != "", Forgotten: t.Forgotten,
			Account: t.Account,
		},
	}
}

// step waits for a call permit and the rail's admission, and makes the call. It does not make a
// debit that is no longer allowed. It returns the call that follows or, with callNone, the result.
// ok is false if the run must end: ctx ended first, or another worker may have the transaction.
func (s *settlement) step(
	ctx, callCtx context.Context, row *rowRun, call railCall,
) (next railCall, result models.RowResult, ok bool) {
	if s.job.Permits.AcquireCalls(ctx, checkoutTicket, 1) == 0 {
		return call, result, false
	}
	defer s.job.Permits.ReleaseCalls(checkoutTicket.organisation, 1)
	if s.job.Rail.Admit(ctx, call.chargedTo(s.transaction.OrganisationID), 1) == 0 {
		return call, result, false
	}
	if call == callDebit && !s.recheck(callCtx, row) {
		return call, result, false
	}
	if call == callDebit && !row.mayDebit() {
		next, result = row.debitOrClose()
	} else {
		next, result = s.next(row, call, s.callRail(callCtx, row, call))
	}
	return next, result, true
}

// next returns the call that follows the rail's answer or, with callNone, the result. While the
// payment intent is closing, next takes amount and agreement from the answer, since the database
// may have lost the payment.
func (s *settlement) next(row *rowRun, call railCall, answer rail.Result) (railCall, models.RowResult) {
	held := answer.Held
	if s.transaction.ClosingAs != "" && held.Currency == s.transaction.Currency && held.Amount <= s.transaction.Amount {
		row.row.Amount, row.row.Account.AgreementID = held.Amount, held.AgreementID
	}
	return row.next(call, answer)
}

// recheck reports, right before a debit, whether this worker still holds the transaction. It reads
// the lease once recheckAfter has passed since the claim, and extends it. It marks the row late if
// the time for attempts has ended.
func (s *settlement) recheck(ctx context.Context, row *rowRun) bool {
	if s.job.Now().Sub(s.leaseCheckedAt) < recheckAfter {
		return true
	}
	phase, err := s.job.Store.ExtendTransaction(ctx, s.transaction)
	if s.lost = errors.Is(err, models.ErrNotFound); err != nil && !s.lost {
		s.job.Log.WarnContext(ctx, "cannot confirm the lease", logs.Outage(err), "error", err)
	}
	row.late = row.late || err == nil && phase != models.PhaseAttempt
	return err == nil
}

// callRail makes one call and returns the rail's answer. The caller holds a call permit and the
// rail's admission.
func (s *settlement) callRail(ctx context.Context, row *rowRun, call railCall) rail.Result {
	ctx, span := s.job.Tracer.StartRail(ctx, call.String(), 1)
	defer span.End(nil)
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
	if !answer.Status.Final() && answer.Status != rail.NotFound {
		span.Fail("no final answer")
	}
	s.job.railLog.answer(ctx, s.job.Log, now, key, call, answer)
	return answer
}

// startHeartbeat starts to extend the lease at intervals, while the run waits for permits,
// admissions and answers. It ends when stop is called.
func (s *settlement) startHeartbeat(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { s.heartbeat(ctx) })
	return func() { cancel(); running.Wait() }
}

// heartbeat extends the lease every heartbeatInterval until the context ends. The next heartbeat
// makes up for a failure.
func (s *settlement) heartbeat(ctx context.Context) {
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, err := s.job.Store.ExtendTransaction(ctx, s.transaction)
		if err != nil && !errors.Is(err, models.ErrNotFound) && ctx.Err() == nil {
			s.job.Log.WarnContext(ctx, "cannot extend the lease", logs.Outage(err), "error", err)
		}
	}
}

// The number of tries after which the backoff stops growing: in the attempt phase, and afterwards.
// It stops earlier than for rows, since a customer waits.
const (
	maxAttemptGrowth = 4 // about 5 s
	maxCloseGrowth   = 9 // about 40 s
)

// resultOf returns the transaction's result for the result r of its row. A transaction whose
// outcome the rail cannot tell stays pending. Later runs ask the rail again, until it tells the
// outcome or an operator decides.
func (s *settlement) resultOf(ctx context.Context, row *rowRun, r models.RowResult) models.TransactionResult {
	result := models.TransactionResult{
		Release: r.Release, Calls: r.Calls, FromRail: r.FromRail, Answered: r.Answered, Alert: r.Alert,
		Found: models.FoundPayment{AgreementID: row.row.Account.AgreementID, Charge: row.row.Amount},
	}
	switch r.Outcome {
	case "":
		if r.Alert != "" {
			s.job.Log.ErrorContext(ctx, "a payment needs an operator", "alert", r.Alert, "key", r.RailKey)
		}
		growth := maxAttemptGrowth
		if s.transaction.Phase != models.PhaseAttempt {
			growth = maxCloseGrowth
		}
		deferrals := min(s.transaction.Deferrals, growth)
		result.RetryAfter = retryAfter(deferrals, rand.Float64()) //nolint:gosec // jitter, not a secret
	case models.OutcomeUnconfirmed:
		result.RetryAfter = maxRetryAfter
		s.job.Log.ErrorContext(ctx, "the rail cannot tell the outcome of a payment", "alert", r.Alert, "key", r.RailKey)
	case models.OutcomeSucceeded:
		result.Status = models.TransactionSettled
	case models.OutcomeTimedOut:
		result.Status = s.unpaidStatus()
	default:
		result.Status, result.Reason = models.TransactionDeclined, r.Outcome
	}
	return result
}

// unpaidStatus returns the final status of a transaction that was not debited and never will be.
func (s *settlement) unpaidStatus() models.TransactionStatus {
	switch t := s.transaction; {
	case t.ClosingAs != "":
		return t.ClosingAs
	case t.Charge == 0:
		return models.TransactionSettled
	default:
		return models.TransactionFailed
	}
}

// record writes the result to the database. Results of a lost transaction are dropped.
func (s *settlement) record(ctx context.Context, result models.TransactionResult) error {
	if s.lost {
		return nil // this worker no longer holds the transaction and its task
	}
	done, err := s.job.Store.FinishTransaction(ctx, s.transaction, result)
	if errors.Is(err, models.ErrUnavailable) {
		// Only the connection may have failed. If Postgres has recorded the result, it ignores it
		// the second time: the lease has ended, and the transaction may have, too. Its webhook
		// event then waits until a dispatcher polls the outbox.
		done, err = s.job.Store.FinishTransaction(ctx, s.transaction, result)
	}
	if err != nil || !done.Ended {
		return err
	}
	s.job.Metrics.transactionEnded(result.Status)
	if s.job.Notify != nil && !done.Task.IsZero() {
		s.job.Notify([]models.TaskID{done.Task})
	}
	return nil
}
