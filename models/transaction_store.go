package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"errors"
	"fmt"

	"partnerbilling/models/postgres"
)

// startSQL is the one conditional update that starts a payment, also at the moment of expiry or
// cancellation. It also writes the task that debits.
const startSQL = `
WITH started AS (
    UPDATE payment_intents p SET state = 'pending', transaction_id = $2, customer_id = $3, agreement_id = $4,
        discounts = $5::jsonb, amount_charged = $6, started_at = svc_now()
    WHERE p.code = $1 AND p.state = 'created' AND p.expires_at > svc_now()
    RETURNING p.organisation_id, p.site_id, p.id, p.trace_id, p.started_at
)
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, trace_id, available_at)
SELECT $7, $8, $9, organisation_id, site_id, id, trace_id, started_at FROM started`

// StartTransaction lets a customer begin to pay. A repeated call for the same party returns the
// same transaction. Errors: ErrNotFound; *DiscountError; ErrIntentTaken if another party came first
// (ErrIntentEnded if its payment has ended); ErrIntentExpired; ErrIntentCancelled.
func (s *Store) StartTransaction(
	ctx context.Context, code string, party Party, discounts []Discount,
) (StartedTransaction, error) {
	intent, _, err := s.PaymentIntentByCode(ctx, code)
	if err != nil {
		return StartedTransaction{}, err
	}
	charge, err := intent.Charge(discounts)
	if err != nil {
		return StartedTransaction{}, err
	}
	if intent.State == IntentCreated {
		started, err := s.startTransaction(ctx, code, party, discounts, charge)
		if err != nil || !started.ID.IsZero() {
			return started, wrap("start transaction", err)
		}
		if intent, _, err = s.PaymentIntentByCode(ctx, code); err != nil { // another statement came first
			return StartedTransaction{}, err
		}
	}
	started, err := intent.startedBy(party)
	return started, wrap("start transaction", err)
}

// startTransaction starts the intent's payment. A zero answer means that it changed nothing.
func (s *Store) startTransaction(
	ctx context.Context, code string, party Party, discounts []Discount, charge Amount,
) (StartedTransaction, error) {
	column, err := toJSON(discounts)
	if err != nil {
		return StartedTransaction{}, err
	}
	started := StartedTransaction{ID: NewID[transactionNoun](), Task: NewID[taskNoun]()}
	n, err := s.execCount(ctx, "move the intent", startSQL, code, started.ID, party.CustomerID, party.AgreementID, column,
		int64(charge), started.Task, string(TaskSettleTransaction), string(QueueCheckout))
	if err != nil || n == 0 {
		return StartedTransaction{}, err
	}
	return started, nil
}

// startedBy explains an intent that cannot be started: nil if the same customer started it. The
// first call's agreement stays.
func (p *PaymentIntent) startedBy(party Party) (StartedTransaction, error) {
	switch {
	case p.Status == TransactionExpired:
		return StartedTransaction{}, ErrIntentExpired
	case p.Status == TransactionCancelled:
		return StartedTransaction{}, ErrIntentCancelled
	case p.Transaction.ID.IsZero():
		return StartedTransaction{}, fmt.Errorf("the intent is %s after all: %w", p.State, ErrUnavailable)
	case p.Transaction.Party.CustomerID != party.CustomerID && p.State == IntentFinal:
		return StartedTransaction{}, ErrIntentEnded
	case p.Transaction.Party.CustomerID != party.CustomerID:
		return StartedTransaction{}, ErrIntentTaken
	}
	return StartedTransaction{ID: p.Transaction.ID, Replayed: true}, nil
}

// transactionPhase is the DebitPhase of the transaction of intent p at now.ms; $4 is AnswerWithin.
const transactionPhase = `CASE WHEN p.closing_as IS NOT NULL OR now.ms >= p.started_at + $4
    OR p.epoch < (SELECT cancelled_before FROM database_epoch) THEN 'close' ELSE 'attempt' END`

var (
	//go:embed transaction_claim.sql
	claimTransactionSQL string
	//go:embed transaction_end.sql
	endTransactionSQL string
	//go:embed transaction_defer.sql
	deferTransactionSQL string
)

// ClaimTransaction claims a task's transaction under the lease token, for RowLease; see
// ClaimedTransaction.Held. ErrNotFound: nothing is left to do.
func (s *Store) ClaimTransaction(ctx context.Context, task TaskID, lease LeaseToken) (ClaimedTransaction, error) {
	t := ClaimedTransaction{Task: task, Lease: lease}
	err := s.pg.Do(ctx, func() error {
		err := s.db.DB.QueryRowContext(ctx, claimTransactionSQL, task, lease, RowLease.Milliseconds(),
			AnswerWithin.Milliseconds(),
			RailMemory.Milliseconds()).
			Scan(&t.Held, &t.SiteID, &t.OrganisationID, &t.IntentID, &t.ID, &t.TraceID, &t.Party.CustomerID,
				&t.Party.AgreementID,
				&t.Charge, &t.Amount, &t.Currency, &t.ClosingAs, &t.Phase, &t.InDoubt, &t.Forgotten, &t.Deferrals, &t.Epoch, &t.ClaimedAt)
		return notFound(err, "transaction")
	})
	return t, wrap("claim transaction", err)
}

// HoldTransaction extends the lease of a claimed transaction and its task by RowLease, and returns
// its current phase. ErrNotFound: it has ended, another worker has taken it, or an operator holds
// it; the caller must stop work on it.
func (s *Store) HoldTransaction(ctx context.Context, t ClaimedTransaction) (DebitPhase, error) {
	var phase DebitPhase
	err := s.pg.Do(ctx, func() error {
		err := s.db.DB.QueryRowContext(ctx, `
WITH task AS (
    UPDATE outbox o SET redispatch_after = statement_timestamp() + $5 * interval '1 ms'
    FROM payment_intents p
    WHERE o.id = $6 AND o.dispatched_at IS NOT NULL AND p.site_id = $1 AND p.id = $2 AND p.lease_token = $3
)
UPDATE payment_intents p SET lease_until = statement_timestamp() + $5 * interval '1 ms'
FROM `+svcNow+` now (ms)
WHERE p.site_id = $1 AND p.id = $2 AND p.lease_token = $3 AND p.lease_until > statement_timestamp()
  AND p.state = 'pending'
  AND p.epoch >= (SELECT held_before FROM database_epoch)
RETURNING `+transactionPhase,
			t.SiteID, t.IntentID, t.Lease, AnswerWithin.Milliseconds(), RowLease.Milliseconds(), t.Task).Scan(&phase)
		return notFound(err, "lease")
	})
	return phase, wrap("hold transaction", err)
}

// FinishTransaction records the result of a claimed transaction: its end with ledger entries and
// the partner's event, or its next attempt. It ignores a transaction that the worker no longer
// holds, unless the result is settled. If that transaction has ended otherwise, the rail has
// contradicted itself, and FinishTransaction raises an alert.
func (s *Store) FinishTransaction(
	ctx context.Context, t ClaimedTransaction, r TransactionResult,
) (done FinishedTransaction, err error) {
	key := t.RailKey()
	if r.Status == "" {
		return done, s.exec(ctx, "defer transaction", deferTransactionSQL, t.SiteID, t.IntentID, t.Lease, r.Release, r.Calls,
			r.RetryAfter.Milliseconds(), t.Task, key, AnswerWithin.Milliseconds(), r.Called, t.ClaimedAt, r.Alert, t.Epoch,
			RailMemory.Milliseconds())
	}
	if !IntentPending.CanEndAs(r.Status) && r.Status != t.ClosingAs {
		return done, fmt.Errorf("models: a transaction cannot end as %s", r.Status)
	}
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		done = FinishedTransaction{}
		intent, err := scanIntent(tx.Tx.Tx.QueryRowContext(ctx, endTransactionSQL+"SELECT "+intentColumns+" FROM p",
			t.SiteID, t.IntentID, t.Lease, string(r.Status), string(r.Reason), r.Calls, t.Task, key,
			r.FromRail, t.Epoch, RailMemory.Milliseconds(), t.foundID(), r.Found.AgreementID, int64(r.Found.Charge)))
		if errors.Is(err, sql.ErrNoRows) {
			return alertContradiction(ctx, tx, t, r)
		}
		if err != nil {
			return err
		}
		done.Ended = true
		done.Task, err = announceEnd(ctx, tx, &intent)
		return err
	})
	return done, wrap("finish transaction", err)
}

// foundID is the id of the transaction, or of a transaction that the database lost.
func (t *ClaimedTransaction) foundID() TransactionID {
	if t.ID.IsZero() {
		return NewID[transactionNoun]()
	}
	return t.ID
}

// alertContradiction raises an alert if the rail debited a transaction that has ended without a
// debit.
func alertContradiction(ctx context.Context, tx postgres.Tx, t ClaimedTransaction, r TransactionResult) error {
	if r.Status != TransactionSettled {
		return nil
	}
	_, err := tx.Tx.Tx.ExecContext(ctx, `
SELECT raise_alert('railContradiction', $3, organisation_id, site_id, 'debited, but the transaction is ' || transaction_status, trace_id)
FROM payment_intents WHERE site_id = $1 AND id = $2 AND transaction_status <> 'Settled'`, t.SiteID, t.IntentID, t.RailKey())
	return err
}

// ParkTransaction ends the run of a task that could claim nothing. The task becomes due with the
// transaction, or when the holder's lease would end.
func (s *Store) ParkTransaction(ctx context.Context, task TaskID) error {
	return s.exec(ctx, "park transaction", `
UPDATE outbox o SET available_at = CASE WHEN w.leased THEN o.available_at ELSE greatest(w.next_attempt_at, w.held_until, o.available_at) END,
    dispatched_at = CASE WHEN w.leased THEN o.dispatched_at END,
    redispatch_after = CASE WHEN w.leased AND o.dispatched_at IS NOT NULL THEN w.lease_until END
FROM (SELECT t.id, p.next_attempt_at, p.lease_until, coalesce(p.lease_until > statement_timestamp(), false) AS leased,
             CASE WHEN p.epoch < (SELECT held_before FROM database_epoch) THEN (SELECT now FROM service_now) + $2 END AS held_until
      FROM outbox t CROSS JOIN LATERAL (
          SELECT * FROM payment_intents x WHERE x.site_id = t.site_id AND x.id = t.subject_id LIMIT 1) p
      WHERE t.id = $1) w
WHERE o.id = w.id`, task, heldRetry.Milliseconds())
}
