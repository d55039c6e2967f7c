package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"errors"
	"fmt"

	"partnerbilling/models/postgres"
)

var (
	// startTransactionSQL starts a payment and writes the task that debits. Its one conditional
	// update decides between concurrent payments, cancellation and expiry.
	startTransactionSQL = postgres.SQL(`
WITH started AS (
    UPDATE payment_intents p SET state = 'pending', transaction_id = :transaction, party = :party,
        discounts = :discounts::jsonb, amount_charged = :charge, started_at = svc_now()
    WHERE p.code = :code AND p.state = 'created' AND p.expires_at > svc_now()
    RETURNING p.organisation_id, p.site_id, p.id, p.trace_id, p.started_at
)
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, trace_id, available_at)
SELECT :task, :kind, :queue, organisation_id, site_id, id, trace_id, started_at FROM started`)
	//go:embed transaction_claim.sql
	transactionClaimText  string
	claimTransactionSQL   = postgres.SQL(transactionClaimText)
	abandonTransactionSQL = postgres.SQL(`
UPDATE payment_intents p SET lease_until = statement_timestamp()
FROM outbox o
WHERE o.id = :task AND p.site_id = o.site_id AND p.id = o.subject_id
  AND p.lease_token = :lease AND p.lease_until > statement_timestamp()`)
	//go:embed transaction_extend.sql
	transactionExtendText string
	extendTransactionSQL  = postgres.SQL(transactionExtendText)
	//go:embed transaction_end.sql
	transactionEndText string
	endTransactionSQL  = postgres.SQL(transactionEndText)
	//go:embed transaction_defer.sql
	transactionDeferText string
	deferTransactionSQL  = postgres.SQL(transactionDeferText)
	//go:embed transaction_park.sql
	transactionParkText string
	parkTransactionSQL  = postgres.SQL(transactionParkText)

	alertContradictionSQL = postgres.SQL(`
SELECT raise_alert(:kind, :key, organisation_id, site_id,
                   'debited, but the transaction is ' || transaction_status, trace_id)
FROM payment_intents WHERE site_id = :site AND id = :intent AND transaction_status <> 'Settled'`)
)

// StartTransaction begins the payment of the intent with a code by the customer of party. A
// repeated call for the same customer returns the same transaction. Errors: ErrNotFound;
// *DiscountError; ErrIntentTaken if another customer came first (ErrIntentEnded if the payment of
// that customer has ended); ErrIntentExpired; ErrIntentCancelled.
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
		started, err := s.startTransaction(ctx, intent.ID, code, party, discounts, charge)
		if err != nil || !started.ID.IsZero() {
			return started, wrap("start transaction", err)
		}
		if intent, _, err = s.PaymentIntentByCode(ctx, code); err != nil { // another statement came first
			return StartedTransaction{}, err
		}
	}
	payer, err := openParty(s, intent.Transaction.SealedParty, intent.ID)
	if err != nil {
		return StartedTransaction{}, wrap("start transaction", err)
	}
	started, err := intent.startedBy(payer, party)
	return started, wrap("start transaction", err)
}

// startTransaction starts the payment of an intent in state created. It returns zero if the intent
// has left the state.
func (s *Store) startTransaction(
	ctx context.Context, intent PaymentIntentID, code string, party Party, discounts []Discount, charge Amount,
) (StartedTransaction, error) {
	sealed, err := sealParty(s, party, intent)
	if err != nil {
		return StartedTransaction{}, err
	}
	column, err := toJSON(discounts)
	if err != nil {
		return StartedTransaction{}, err
	}
	started := StartedTransaction{ID: NewID[transactionNoun](), Task: NewID[taskNoun]()}
	n, err := s.pg.Run(ctx, startTransactionSQL, postgres.Args{
		"code": code, "transaction": started.ID, "party": sealed, "discounts": column, "charge": int64(charge),
		"task": started.Task, "kind": string(TaskSettleTransaction), "queue": string(QueueCheckout),
	})
	if err != nil || n == 0 {
		return StartedTransaction{}, err
	}
	return started, nil
}

// startedBy returns the intent's transaction if payer, the customer who has started it, is the
// customer of party. Otherwise its error says why the payment cannot start. The agreement of the
// first call stays.
func (p *PaymentIntent) startedBy(payer, party Party) (StartedTransaction, error) {
	switch {
	case p.Status == TransactionExpired:
		return StartedTransaction{}, ErrIntentExpired
	case p.Status == TransactionCancelled:
		return StartedTransaction{}, ErrIntentCancelled
	case p.Transaction.ID.IsZero():
		return StartedTransaction{}, fmt.Errorf("the intent is still %s: %w", p.State, ErrUnavailable)
	case payer.CustomerID != party.CustomerID && p.State == IntentFinal:
		return StartedTransaction{}, ErrIntentEnded
	case payer.CustomerID != party.CustomerID:
		return StartedTransaction{}, ErrIntentTaken
	}
	return StartedTransaction{ID: p.Transaction.ID, Replayed: true}, nil
}

// ClaimTransaction claims a task's transaction under the lease token, for RowLease; see
// ClaimedTransaction.Claimed. ErrNotFound: nothing is left to do.
func (s *Store) ClaimTransaction(ctx context.Context, task TaskID, lease LeaseToken) (ClaimedTransaction, error) {
	var row transactionRow
	err := s.pg.Get(ctx, claimTransactionSQL, postgres.Args{
		"task": task, "lease": lease, "row_lease": RowLease.Milliseconds(),
		"answer_within": AnswerWithin.Milliseconds(), "rail_memory": RailMemory.Milliseconds(),
	}, &row)
	if err != nil {
		return ClaimedTransaction{}, wrap("claim transaction", notFound(err, "transaction"))
	}
	claimed := row.claimed(task, lease)
	party, unreadable, err := readParty(s, row.Party, row.ID)
	claimed.Account = DebitAccount{
		Linked: true, CustomerID: party.CustomerID, AgreementID: party.AgreementID, Unreadable: unreadable,
	}
	return claimed, wrap("claim transaction", err)
}

// AbandonTransaction ends the lease that ClaimTransaction has acquired under the lease token. A
// worker calls it if the answer of the claim was lost, and has not called the rail. The next claim
// nevertheless finds the transaction in doubt.
func (s *Store) AbandonTransaction(ctx context.Context, task TaskID, lease LeaseToken) error {
	_, err := s.pg.Run(ctx, abandonTransactionSQL, postgres.Args{"task": task, "lease": lease})
	return wrap("abandon transaction", err)
}

// transactionRow is the one row of claimTransactionSQL.
type transactionRow struct {
	Claimed        bool
	SiteID         SiteID
	OrganisationID OrganisationID
	ID             PaymentIntentID
	TransactionID  TransactionID
	TraceID        TraceID
	Party          []byte // sealed
	AmountCharged  Amount
	Amount         Amount
	Currency       string
	ClosingAs      TransactionStatus
	Phase          DebitPhase
	InDoubt        bool
	Forgotten      bool
	Deferrals      int
	Epoch          int
	ClaimedAt      Millis
}

// claimed returns the transaction without its Account.
func (r *transactionRow) claimed(task TaskID, lease LeaseToken) ClaimedTransaction {
	return ClaimedTransaction{
		Task: task, Lease: lease, Claimed: r.Claimed, SiteID: r.SiteID, OrganisationID: r.OrganisationID,
		IntentID: r.ID, ID: r.TransactionID, TraceID: r.TraceID,
		Charge: r.AmountCharged, Amount: r.Amount, Currency: r.Currency, ClosingAs: r.ClosingAs, Phase: r.Phase,
		InDoubt: r.InDoubt, Forgotten: r.Forgotten, Deferrals: r.Deferrals, Epoch: r.Epoch, ClaimedAt: r.ClaimedAt,
	}
}

// ExtendTransaction makes the lease of a claimed transaction and its task end RowLease from now,
// and returns the transaction's current phase. ErrNotFound: the worker must stop, because the
// transaction has ended, its lease has expired, another worker has taken it over, or it waits for
// an operator.
func (s *Store) ExtendTransaction(ctx context.Context, t ClaimedTransaction) (DebitPhase, error) {
	var phase DebitPhase
	err := s.pg.Get(ctx, extendTransactionSQL, postgres.Args{
		"site": t.SiteID, "intent": t.IntentID, "lease": t.Lease, "task": t.Task,
		"answer_within": AnswerWithin.Milliseconds(), "row_lease": RowLease.Milliseconds(),
	}, &phase)
	return phase, wrap("extend transaction", notFound(err, "lease"))
}

// FinishTransaction records the result of a claimed transaction: its end with ledger entry and
// webhook event, or its next attempt. It ignores the result if the worker no longer holds the
// transaction. A debit counts in any case, but not for another transaction of the payment intent:
// one that began after the database had lost this one. If a transaction that the rail reports as
// debited has ended otherwise, FinishTransaction raises an alert.
func (s *Store) FinishTransaction(
	ctx context.Context, t ClaimedTransaction, r TransactionResult,
) (done FinishedTransaction, err error) {
	if r.Status == "" {
		_, err := s.pg.Run(ctx, deferTransactionSQL, postgres.Args{
			"site": t.SiteID, "intent": t.IntentID, "task": t.Task, "lease": t.Lease, "key": t.RailKey(),
			"release": r.Release, "calls": r.Calls, "answered": r.Answered,
			"retry_after": r.RetryAfter.Milliseconds(), "claimed_at": t.ClaimedAt, "epoch": t.Epoch, "alert": r.Alert,
			"answer_within": AnswerWithin.Milliseconds(), "rail_memory": RailMemory.Milliseconds(),
		})
		return done, wrap("defer transaction", err)
	}
	if !IntentPending.CanEndAs(r.Status) && r.Status != t.ClosingAs {
		return done, fmt.Errorf("models: a transaction cannot end as %s", r.Status)
	}
	err = s.act(ctx, func(tx postgres.Tx) (err error) {
		if done, err = s.endTransaction(ctx, tx, t, r); err == nil && !done.Ended {
			err = alertContradiction(ctx, tx, t, r)
		}
		return err
	})
	return done, wrap("finish transaction", err)
}

// endTransaction ends a pending transaction with the final status of a result, unless the result
// does not count; see FinishTransaction.
func (s *Store) endTransaction(
	ctx context.Context, tx postgres.Tx, t ClaimedTransaction, r TransactionResult,
) (done FinishedTransaction, err error) {
	party := []byte{}
	if r.Found.AgreementID != "" { // a payment that the database has lost
		if party, err = sealParty(s, Party{AgreementID: r.Found.AgreementID}, t.IntentID); err != nil {
			return done, err
		}
	}
	var intent PaymentIntent
	err = tx.Get(ctx, endTransactionSQL, postgres.Args{
		"site": t.SiteID, "intent": t.IntentID, "task": t.Task, "lease": t.Lease, "key": t.RailKey(),
		"status": string(r.Status), "reason": string(r.Reason), "calls": r.Calls, "from_rail": r.FromRail,
		"debited": t.debited(r), "epoch": t.Epoch, "transaction": t.foundID(), "party": party,
		"charge": int64(r.Found.Charge), "rail_memory": RailMemory.Milliseconds(),
	}, &intent)
	if errors.Is(err, sql.ErrNoRows) {
		return done, nil
	}
	if err != nil {
		return done, err
	}
	done.Ended = true
	done.Task, err = announceEnd(ctx, tx, &intent)
	return done, err
}

// debited reports whether a result says that the rail has debited the transaction. A charge of zero
// settles without a debit.
func (t *ClaimedTransaction) debited(r TransactionResult) bool {
	return r.Status == TransactionSettled && max(t.Charge, r.Found.Charge) > 0
}

// foundID returns the id of the transaction, or of a transaction that the database lost.
func (t *ClaimedTransaction) foundID() TransactionID {
	if t.ID.IsZero() {
		return NewID[transactionNoun]()
	}
	return t.ID
}

// alertContradiction raises an alert if the result is a debit, and the transaction has ended
// without one.
func alertContradiction(ctx context.Context, tx postgres.Tx, t ClaimedTransaction, r TransactionResult) error {
	if !t.debited(r) {
		return nil
	}
	_, err := tx.Run(ctx, alertContradictionSQL, postgres.Args{
		"kind": AlertRailContradiction, "site": t.SiteID, "intent": t.IntentID, "key": t.RailKey(),
	})
	return err
}

// ParkTransaction ends the run of a task that could not claim its transaction. The task becomes due
// at the transaction's next attempt or, if another worker holds the transaction, at the end of that
// worker's lease.
func (s *Store) ParkTransaction(ctx context.Context, task TaskID) error {
	_, err := s.pg.Run(ctx, parkTransactionSQL, postgres.Args{"task": task, "held_retry": heldRetry.Milliseconds()})
	return wrap("park transaction", err)
}
