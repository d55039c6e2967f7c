package models

import (
	"context"
	"errors"

	"github.com/uptrace/bun"
)

// ErrNothingHeld says that no restore waits for a decision.
var ErrNothingHeld = errors.New("models: no restored work is held")

// Epoch reads the database's epoch. It begins a new one if the server is not the one that the database remembers.
func (s *Store) Epoch(ctx context.Context) (Epoch, error) {
	var e Epoch
	err := s.inTx(ctx, func(tx bun.Tx) (err error) {
		e, err = readEpoch(ctx, tx)
		return err
	})
	return e, wrap("epoch", err)
}

func readEpoch(ctx context.Context, tx bun.Tx) (Epoch, error) {
	var e Epoch
	err := tx.NewRaw(`
SELECT c.epoch, coalesce(d.began_at, 0), c.held_before, c.cancelled_before,
    (SELECT count(*) FROM batches WHERE settled_at IS NULL AND epoch < c.epoch)
    + (SELECT count(*) FROM payment_intents WHERE state <> 'final' AND epoch < c.epoch)
FROM current_epoch(?) c, database_epoch d`, RailMemory.Milliseconds()).
		Scan(ctx, &e.Number, &e.BeganAt, &e.HeldBefore, &e.CancelledBefore, &e.Doubted)
	return e, err
}

// BeginEpoch says that the database was restored: commits may be lost that its server knows nothing of, as after a dump
// or a storage snapshot. Work of earlier epochs is held until ResumeRestored or CancelRestored, since cancellations and
// revocations may be lost as well.
func (s *Store) BeginEpoch(ctx context.Context) (Epoch, error) {
	var e Epoch
	err := s.inTx(ctx, func(tx bun.Tx) (err error) {
		if _, err = readEpoch(ctx, tx); err != nil { // a new server begins its own epoch first
			return err
		}
		if _, err = tx.NewRaw(`
UPDATE database_epoch SET epoch = epoch + 1, began_at = svc_now(), held_before = epoch + 1`).Exec(ctx); err != nil {
			return err
		}
		e, err = readEpoch(ctx, tx)
		return err
	})
	return e, wrap("begin epoch", err)
}

// ResumeRestored lets held work go on: the rail is asked about each row and payment, and debits what it has never seen.
// ErrNothingHeld: no work is held.
func (s *Store) ResumeRestored(ctx context.Context) (Epoch, error) {
	return s.decideRestored(ctx, "resume restored work", `
UPDATE database_epoch SET held_before = 0 WHERE held_before > 0`)
}

// CancelRestored cancels held work on the rail: what was not debited before the loss never will be. ErrNothingHeld: no
// work is held.
func (s *Store) CancelRestored(ctx context.Context) (Epoch, error) {
	return s.decideRestored(ctx, "cancel restored work", `
UPDATE database_epoch SET cancelled_before = held_before, held_before = 0 WHERE held_before > 0`)
}

func (s *Store) decideRestored(ctx context.Context, what, update string) (Epoch, error) {
	var e Epoch
	err := s.inTx(ctx, func(tx bun.Tx) error {
		result, err := tx.NewRaw(update).Exec(ctx)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, ErrNothingHeld)
		}
		e, err = readEpoch(ctx, tx)
		return err
	})
	return e, wrap(what, err)
}
