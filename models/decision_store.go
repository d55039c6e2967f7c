package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"errors"
	"fmt"

	"partnerbilling/models/postgres"
)

//go:embed debit_decide.sql
var decideRowSQL string

// ErrNotUndecided says that a row or payment has an outcome, or that a worker is asking the rail
// for it.
var ErrNotUndecided = errors.New("models: no decision is needed")

// RowRailKey returns the rail key of a row. ErrNotFound: the Site has no such batch, or the batch
// no such row.
func (s *Store) RowRailKey(ctx context.Context, site SiteID, batchReference, rowReference string) (string, error) {
	var generation int
	err := s.pg.Do(ctx, func() error {
		return notFound(s.db.NewRaw(`
SELECT b.generation FROM batches b JOIN batch_rows r ON r.site_id = b.site_id AND r.batch_id = b.id
  AND r.row_reference = ?2
WHERE b.site_id = ?0 AND b.batch_reference = ?1`, site, batchReference, rowReference).Scan(ctx, &generation), "row")
	})
	if err != nil {
		return "", wrap("rail key", err)
	}
	return NewBatchKey(site, batchReference, generation).Row(rowReference), nil
}

// DecideRow corrects an unconfirmed row by an operator's decision, posts the ledger entry of a
// debit, and closes the row's alert. Errors: ErrNotFound; ErrNotUndecided if the row is not
// unconfirmed, or already corrected.
func (s *Store) DecideRow(
	ctx context.Context, site SiteID, batchReference, rowReference string, decision DebitDecision,
) (RowOutcome, error) {
	key, err := s.RowRailKey(ctx, site, batchReference, rowReference)
	if err != nil {
		return "", err
	}
	var outcome RowOutcome
	err = s.pg.Do(ctx, func() error {
		err := s.db.DB.QueryRowContext(ctx, decideRowSQL, site, batchReference, rowReference, bool(decision),
			key).Scan(&outcome)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotUndecided
		}
		return err
	})
	return outcome, wrap("decide row", err)
}

// DecidePayment ends a pending payment by an operator's decision, with its event and, for a debit,
// its ledger entry. It returns the task that notifies the partner (zero: none). Errors:
// ErrNotFound; ErrNotUndecided if the payment intent is not pending, or a worker is asking the
// rail.
func (s *Store) DecidePayment(
	ctx context.Context, id PaymentIntentID, decision DebitDecision,
) (TransactionStatus, TaskID, error) {
	t := ClaimedTransaction{IntentID: id, Lease: NewLeaseToken()}
	err := s.pg.Do(ctx, func() error {
		return s.db.DB.QueryRowContext(ctx, `
UPDATE payment_intents p SET lease_token = $2, lease_until = statement_timestamp() + $3 * interval '1 ms', in_doubt = true
WHERE p.site_id = (SELECT i.site_id FROM sites s JOIN payment_intents i ON i.site_id = s.id AND i.id = $1) AND p.id = $1
  AND p.state = 'pending'
  AND (p.lease_until IS NULL OR p.lease_until <= statement_timestamp())
RETURNING p.site_id, p.organisation_id, coalesce(p.closing_as::text, ''), p.amount, coalesce(p.amount_charged, p.amount)`,
			id, t.Lease, RowLease.Milliseconds()).Scan(&t.SiteID, &t.OrganisationID, &t.ClosingAs, &t.Amount, &t.Charge)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return "", TaskID{}, fmt.Errorf("models: decide payment: %w", s.whyUndecidable(ctx, id))
	}
	if err != nil {
		return "", TaskID{}, wrap("decide payment", err)
	}
	result := TransactionResult{Status: TransactionFailed, FromRail: true, Found: FoundPayment{Charge: t.Charge}}
	switch {
	case bool(decision):
		result.Status = TransactionSettled
	case t.ClosingAs != "":
		result.Status = t.ClosingAs
	}
	done, err := s.FinishTransaction(ctx, t, result)
	return result.Status, done.Task, err
}

// whyUndecidable distinguishes a missing payment intent from one that needs no decision.
func (s *Store) whyUndecidable(ctx context.Context, id PaymentIntentID) error {
	var exists bool
	if err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
		return tx.NewRaw("SELECT EXISTS (SELECT FROM sites s JOIN payment_intents i ON i.site_id = s.id AND i.id = ?)",
			id).Scan(ctx, &exists)
	}); err != nil {
		return err
	}
	if !exists {
		return ErrNotFound
	}
	return ErrNotUndecided
}
