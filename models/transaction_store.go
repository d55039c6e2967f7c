package models

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"
)

// startSQL is the one conditional update that decides who pays, also at the moment of expiry or cancellation, with the task
// that debits.
const startSQL = `
WITH started AS (
    UPDATE payment_intents p SET state = 'pending', transaction_id = $2, customer_id = $3, agreement_id = $4,
        discounts = $5::jsonb, amount_charged = $6, started_at = svc_now()
    WHERE p.code = $1 AND p.state = 'created' AND p.expires_at > svc_now()
    RETURNING p.organisation_id, p.site_id, p.id, p.trace_id, p.started_at
)
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, trace_id, available_at)
SELECT $7, $8, $9, organisation_id, site_id, id, trace_id, started_at FROM started`

// StartTransaction lets a customer begin to pay. The same party again gets the same transaction, whatever became of it.
// Errors: ErrNotFound; *DiscountError; ErrIntentTaken if another party came first (ErrIntentEnded, if it has ended);
// ErrIntentExpired, ErrIntentCancelled.
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
		if intent, _, err = s.PaymentIntentByCode(ctx, code); err != nil { // who was faster?
			return StartedTransaction{}, err
		}
	}
	started, err := intent.startedBy(party)
	return started, wrap("start transaction", err)
}

// startTransaction moves the intent, or nothing: then the answer is zero.
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

// startedBy judges an intent that cannot be started any more: nil if the customer is the one that started it; the
// agreement of that first call stands.
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
const transactionPhase = `CASE WHEN now.ms >= p.started_at + $4 THEN 'close' ELSE 'attempt' END`

// claimTransactionSQL claims the transaction of the intent that a task names, if it is due and nobody holds it. What was
// claimed before and not given back is in doubt. The task's own lease moves along.
const claimTransactionSQL = `
WITH t AS MATERIALIZED (
    SELECT p.*, now.ms AS now, o.id AS task,
           ` + transactionPhase + ` AS phase,
           (p.lease_until IS NULL OR p.lease_until <= clock_timestamp()) AND coalesce(p.next_attempt_at, 0) <= now.ms AS free
    FROM outbox o JOIN payment_intents p ON p.site_id = o.site_id AND p.id = o.subject_id, ` + svcNow + ` now (ms)
    WHERE o.id = $1 AND p.state = 'pending'
    FOR UPDATE OF p
), claimed AS (
    UPDATE payment_intents p SET lease_token = $2, lease_until = clock_timestamp() + $3 * interval '1 ms', in_doubt = true,
        attempts = p.attempts + CASE WHEN t.phase = 'attempt' AND NOT t.in_doubt THEN 1 ELSE 0 END
    FROM t WHERE t.free AND p.site_id = t.site_id AND p.id = t.id
    RETURNING p.id
), held AS (
    UPDATE outbox o SET redispatch_after = clock_timestamp() + $3 * interval '1 ms'
    WHERE o.id = $1 AND o.dispatched_at IS NOT NULL AND EXISTS (SELECT FROM claimed)
)
SELECT EXISTS (SELECT FROM claimed), t.site_id, t.organisation_id, t.id, t.transaction_id, t.trace_id, t.customer_id,
       t.agreement_id, t.amount_charged, t.currency, t.phase, t.in_doubt, t.deferrals
FROM t`

// ClaimTransaction claims what a task is about under the lease token, for RowLease; see ClaimedTransaction.Held. ErrNotFound:
// there is nothing left to do.
func (s *Store) ClaimTransaction(ctx context.Context, task TaskID, lease LeaseToken) (ClaimedTransaction, error) {
	t := ClaimedTransaction{Task: task, Lease: lease}
	err := s.statement(ctx, func() error {
		err := s.db.DB.QueryRowContext(ctx, claimTransactionSQL, task, lease, RowLease.Milliseconds(), AnswerWithin.Milliseconds()).
			Scan(&t.Held, &t.SiteID, &t.OrganisationID, &t.IntentID, &t.ID, &t.TraceID, &t.Party.CustomerID, &t.Party.AgreementID,
				&t.Charge, &t.Currency, &t.Phase, &t.InDoubt, &t.Deferrals)
		return notFound(err, "transaction")
	})
	return t, wrap("claim transaction", err)
}

// HoldTransaction extends the lease of a claimed transaction and of its task by RowLease, and tells its phase by now. ErrNotFound:
// another worker has taken it, or it has ended; it must be left alone.
func (s *Store) HoldTransaction(ctx context.Context, t ClaimedTransaction) (DebitPhase, error) {
	var phase DebitPhase
	err := s.statement(ctx, func() error {
		err := s.db.DB.QueryRowContext(ctx, `
WITH task AS (
    UPDATE outbox o SET redispatch_after = clock_timestamp() + $5 * interval '1 ms'
    FROM payment_intents p
    WHERE o.id = $6 AND o.dispatched_at IS NOT NULL AND p.site_id = $1 AND p.id = $2 AND p.lease_token = $3
)
UPDATE payment_intents p SET lease_until = clock_timestamp() + $5 * interval '1 ms'
FROM `+svcNow+` now (ms)
WHERE p.site_id = $1 AND p.id = $2 AND p.lease_token = $3 AND p.lease_until > clock_timestamp() AND p.state = 'pending'
RETURNING `+transactionPhase,
			t.SiteID, t.IntentID, t.Lease, AnswerWithin.Milliseconds(), RowLease.Milliseconds(), t.Task).Scan(&phase)
		return notFound(err, "lease")
	})
	return phase, wrap("hold transaction", err)
}

// endSQL ends a transaction: under its lease, or with the truth that money was taken, whoever brings it. The ledger, the
// task and the alert follow from the row that came back.
const endSQL = `
WITH p AS (
    UPDATE payment_intents p SET state = 'final', transaction_status = $4::transaction_status,
        status_reason = nullif($5, '')::row_outcome, final_at = svc_now(), attempts = p.attempts + $6, in_doubt = false,
        next_attempt_at = NULL, lease_token = NULL, lease_until = NULL
    WHERE p.site_id = $1 AND p.id = $2 AND p.state = 'pending' AND (p.lease_token = $3 OR $4 = 'Settled')
    RETURNING p.*
), ledger AS (
    INSERT INTO ledger_entries (source_id, source_index, account, site_id, currency, amount, recorded_at)
    SELECT p.transaction_id, 0, a.account, p.site_id, p.currency, a.sign * p.amount_charged, p.final_at
    FROM p, (VALUES ('railClearing'::ledger_account, 1), ('sitePayable', -1)) AS a (account, sign)
    WHERE p.transaction_status = 'Settled' AND p.amount_charged > 0
), done AS (
    DELETE FROM outbox WHERE id = $7 AND EXISTS (SELECT FROM p)
), alert AS (
    UPDATE alerts SET closed_at = svc_now()
    WHERE kind = 'transactionInDoubt' AND subject = $8 AND closed_at IS NULL AND EXISTS (SELECT FROM p)
)
SELECT ` + intentColumns + ` FROM p`

// deferSQL gives a transaction back that has no final answer, to be taken up again later. One that not even a cancellation
// could end is worth an operator's look.
const deferSQL = `
WITH p AS (
    UPDATE payment_intents p SET in_doubt = NOT $4, deferrals = p.deferrals + 1, attempts = p.attempts + $5,
        next_attempt_at = svc_now() + $6, lease_token = NULL, lease_until = NULL
    WHERE p.site_id = $1 AND p.id = $2 AND p.state = 'pending' AND p.lease_token = $3
    RETURNING p.*
), alert AS (
    INSERT INTO alerts (kind, subject, organisation_id, site_id, trace_id, raised_at)
    SELECT 'transactionInDoubt', $8, p.organisation_id, p.site_id, p.trace_id, svc_now() FROM p
    WHERE p.in_doubt AND svc_now() >= p.started_at + $9
    ON CONFLICT (kind, subject) DO NOTHING
)
UPDATE outbox o SET available_at = p.next_attempt_at, dispatched_at = NULL, redispatch_after = NULL
FROM p WHERE o.id = $7`

// FinishTransaction writes what is now known of a claimed transaction: its end with the ledger's entries and the partner's
// event, or when it is taken up again. One that the worker no longer holds is left alone, unless it turns out to be
// settled. If it has ended otherwise by then, the rail has contradicted itself, and an alert says so.
func (s *Store) FinishTransaction(
	ctx context.Context, t ClaimedTransaction, r TransactionResult,
) (done FinishedTransaction, err error) {
	if r.Status == "" {
		return done, s.exec(ctx, "defer transaction", deferSQL, t.SiteID, t.IntentID, t.Lease, r.Release, r.Calls,
			r.RetryAfter.Milliseconds(), t.Task, t.ID.String(), AnswerWithin.Milliseconds())
	}
	if !IntentPending.CanEndAs(r.Status) {
		return done, fmt.Errorf("models: a transaction cannot end as %s", r.Status)
	}
	err = s.inTx(ctx, func(tx bun.Tx) error {
		done = FinishedTransaction{}
		intent, err := scanIntent(tx.Tx.QueryRowContext(ctx, endSQL, t.SiteID, t.IntentID, t.Lease, string(r.Status),
			string(r.Reason), r.Calls, t.Task, t.ID.String()))
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

// alertContradiction raises an alert if money was taken for a transaction that has ended without.
func alertContradiction(ctx context.Context, tx bun.Tx, t ClaimedTransaction, r TransactionResult) error {
	if r.Status != TransactionSettled {
		return nil
	}
	_, err := tx.Tx.ExecContext(ctx, `
INSERT INTO alerts (kind, subject, organisation_id, site_id, detail, trace_id, raised_at)
SELECT 'railContradiction', $3, organisation_id, site_id, 'debited, but the transaction is ' || transaction_status, trace_id, svc_now()
FROM payment_intents WHERE site_id = $1 AND id = $2 AND transaction_status <> 'Settled'
ON CONFLICT (kind, subject) DO NOTHING`, t.SiteID, t.IntentID, t.ID.String())
	return err
}

// ParkTransaction ends a run of a task that could claim nothing: it goes out again when the transaction is due, or when its
// holder's lease would run out.
func (s *Store) ParkTransaction(ctx context.Context, task TaskID) error {
	return s.exec(ctx, "park transaction", `
UPDATE outbox o SET available_at = CASE WHEN p.leased THEN o.available_at ELSE coalesce(p.next_attempt_at, o.available_at) END,
    dispatched_at = CASE WHEN p.leased THEN o.dispatched_at END,
    redispatch_after = CASE WHEN p.leased AND o.dispatched_at IS NOT NULL THEN p.lease_until END
FROM (SELECT *, coalesce(lease_until > clock_timestamp(), false) AS leased FROM payment_intents) p
WHERE o.id = $1 AND p.site_id = o.site_id AND p.id = o.subject_id`, task)
}
