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
	//go:embed debit_decide.sql
	debitDecideText string
	decideRowSQL    = postgres.SQL(debitDecideText)

	// generationSQL reads the generation of a batch that has the row.
	generationSQL = postgres.SQL(`
SELECT b.generation
FROM batches b JOIN batch_rows r ON r.site_id = b.site_id AND r.batch_id = b.id AND r.row_reference = :row_reference
WHERE b.site_id = :site AND b.batch_reference = :batch_reference`)
	// leasePaymentSQL leases a pending payment, so that no worker acts on it meanwhile.
	leasePaymentSQL = postgres.SQL(`
UPDATE payment_intents p SET lease_token = :lease, in_doubt = true,
    lease_until = statement_timestamp() + :row_lease * interval '1 ms'
WHERE p.id = :intent AND p.state = 'pending' AND (p.lease_until IS NULL OR p.lease_until <= statement_timestamp())
RETURNING p.site_id, p.organisation_id, p.transaction_id, p.closing_as, p.amount,
    coalesce(p.amount_charged, p.amount) AS charge`)
	intentExistsSQL = postgres.SQL(`SELECT EXISTS (SELECT FROM payment_intents WHERE id = :intent)`)
)

// ErrNoDecisionNeeded says that a row is not unconfirmed, that a payment is not pending, or that a
// worker is asking the rail about the payment.
var ErrNoDecisionNeeded = errors.New("models: no decision is needed")

// RowRailKey returns the rail key of a row. ErrNotFound: the Site has no such batch, or the batch
// has no such row.
func (s *Store) RowRailKey(ctx context.Context, site SiteID, batchReference, rowReference string) (string, error) {
	var generation int
	err := s.pg.Get(ctx, generationSQL, postgres.Args{
		"site": site, "batch_reference": batchReference, "row_reference": rowReference,
	}, &generation)
	if err != nil {
		return "", wrap("rail key", notFound(err, "row"))
	}
	return NewBatchKey(site, batchReference, generation).Row(rowReference), nil
}

// DecideRow corrects an unconfirmed row by an operator's decision, and returns its corrected
// outcome. It posts the ledger entry of a debit, and closes the row's alerts of the kinds
// AlertRailConflict and AlertRailForgot. Errors: ErrNotFound; ErrNoDecisionNeeded if the row is not
// unconfirmed, or has been corrected already.
func (s *Store) DecideRow(
	ctx context.Context, site SiteID, batchReference, rowReference string, decision DebitDecision,
) (RowOutcome, error) {
	actFrom(ctx).about(SubjectBatchRow, "").in(OrganisationID{}, site).with("batchReference", batchReference).
		with("rowReference", rowReference).with("decision", decision)
	debited, err := decision.debited()
	if err != nil {
		return "", err
	}
	key, err := s.RowRailKey(ctx, site, batchReference, rowReference)
	if err != nil {
		return "", err
	}
	actFrom(ctx).about(SubjectBatchRow, key)
	var outcome RowOutcome
	err = s.act(ctx, func(tx postgres.Tx) error {
		return tx.Get(ctx, decideRowSQL, postgres.Args{
			"site": site, "batch_reference": batchReference, "row_reference": rowReference, "debited": debited,
			"key": key,
		}, &outcome)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoDecisionNeeded
	}
	return outcome, wrap("decide row", err)
}

// DecidePayment ends a pending payment by an operator's decision. It returns the final status, and
// the task that notifies the partner (zero: none). A debit gets its ledger entry. Errors:
// ErrNotFound; ErrNoDecisionNeeded if the payment intent is not pending, or a worker is asking the
// rail about it. A refused decision raises no alert, whatever it says: reconciliation finds a debit
// without an entry.
func (s *Store) DecidePayment(
	ctx context.Context, id PaymentIntentID, decision DebitDecision,
) (TransactionStatus, TaskID, error) {
	var leased struct {
		SiteID         SiteID
		OrganisationID OrganisationID
		TransactionID  TransactionID
		ClosingAs      TransactionStatus
		Amount, Charge Amount
	}
	lease, act := NewLeaseToken(), actFrom(ctx)
	act.about(SubjectPaymentIntent, id.String()).with("decision", decision)
	debited, err := decision.debited()
	if err != nil {
		return "", TaskID{}, err
	}
	err = s.pg.Get(ctx, leasePaymentSQL, postgres.Args{
		"intent": id, "lease": lease, "row_lease": RowLease.Milliseconds(),
	}, &leased)
	if errors.Is(err, sql.ErrNoRows) {
		return "", TaskID{}, fmt.Errorf("models: decide payment: %w", s.whyUndecidable(ctx, id))
	}
	if err != nil {
		return "", TaskID{}, wrap("decide payment", err)
	}
	act.in(leased.OrganisationID, leased.SiteID)
	t := ClaimedTransaction{
		IntentID: id, ID: leased.TransactionID, Lease: lease, SiteID: leased.SiteID,
		OrganisationID: leased.OrganisationID, ClosingAs: leased.ClosingAs,
		Amount: leased.Amount, Charge: leased.Charge,
	}
	result := TransactionResult{Status: TransactionFailed, FromRail: true, Found: FoundPayment{Charge: t.Charge}}
	switch {
	case debited:
		result.Status = TransactionSettled
	case t.ClosingAs != "":
		result.Status = t.ClosingAs
	}
	var done FinishedTransaction
	err = s.act(ctx, func(tx postgres.Tx) (err error) {
		if done, err = s.endTransaction(ctx, tx, t, result); err == nil && !done.Ended {
			err = ErrNoDecisionNeeded // a worker has ended it, or acts on it
		}
		return err
	})
	if err != nil {
		return "", TaskID{}, wrap("decide payment", err)
	}
	return result.Status, done.Task, nil
}

// whyUndecidable distinguishes a missing payment intent from one that needs no decision.
func (s *Store) whyUndecidable(ctx context.Context, id PaymentIntentID) error {
	var exists bool
	if err := s.pg.Get(ctx, intentExistsSQL, postgres.Args{"intent": id}, &exists); err != nil {
		return err
	}
	if !exists {
		return ErrNotFound
	}
	return ErrNoDecisionNeeded
}
