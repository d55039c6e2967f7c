package models

import (
	"context"
	"errors"

	"partnerbilling/models/postgres"
)

// ErrNothingHeld says that no restore waits for a decision.
var ErrNothingHeld = errors.New("models: no restored work is held")

var (
	epochSQL = postgres.SQL(`
SELECT c.epoch AS number, d.began_at, c.held_before, c.cancelled_before,
    (SELECT count(*) FROM batches WHERE settled_at IS NULL AND epoch < c.epoch)
    + (SELECT count(*) FROM payment_intents WHERE state <> 'final' AND epoch < c.epoch) AS in_doubt
FROM current_epoch(:rail_memory) c, database_epoch d`)
	beginEpochSQL = postgres.SQL(`
UPDATE database_epoch SET epoch = epoch + 1, began_at = svc_now(), held_before = epoch + 1`)
	resumeRestoredSQL = postgres.SQL(`UPDATE database_epoch SET held_before = 0 WHERE held_before > 0`)
	cancelRestoredSQL = postgres.SQL(`
UPDATE database_epoch SET cancelled_before = held_before, held_before = 0 WHERE held_before > 0`)
)

// Epoch returns the database's epoch. It begins a new one if the server is not the recorded one.
func (s *Store) Epoch(ctx context.Context) (Epoch, error) {
	var e Epoch
	err := s.pg.InTx(ctx, func(tx postgres.Tx) (err error) {
		e, err = readEpoch(ctx, tx)
		return err
	})
	return e, wrap("epoch", err)
}

func readEpoch(ctx context.Context, tx postgres.Tx) (Epoch, error) {
	var e Epoch
	err := tx.Get(ctx, epochSQL, postgres.Args{"rail_memory": RailMemory.Milliseconds()}, &e)
	return e, err
}

// BeginEpoch records that the database was restored from a dump or a storage snapshot, which its
// server cannot detect. Commits may be lost, cancellations and revocations among them. Work of
// earlier epochs is held until ResumeRestored or CancelRestored.
func (s *Store) BeginEpoch(ctx context.Context) (Epoch, error) {
	var e Epoch
	err := s.pg.InTx(ctx, func(tx postgres.Tx) (err error) {
		if _, err = readEpoch(ctx, tx); err != nil { // a new server begins its own epoch first
			return err
		}
		if _, err = tx.Run(ctx, beginEpochSQL, nil); err != nil {
			return err
		}
		e, err = readEpoch(ctx, tx)
		return err
	})
	return e, wrap("begin epoch", err)
}

// ResumeRestored releases held work: the rail is asked about each row and payment, and debits the
// keys that it has never seen. ErrNothingHeld: no work is held.
func (s *Store) ResumeRestored(ctx context.Context) (Epoch, error) {
	return s.decideRestored(ctx, "resume restored work", resumeRestoredSQL)
}

// CancelRestored cancels held work on the rail: keys not debited before the loss never will be.
// ErrNothingHeld: no work is held.
func (s *Store) CancelRestored(ctx context.Context) (Epoch, error) {
	return s.decideRestored(ctx, "cancel restored work", cancelRestoredSQL)
}

func (s *Store) decideRestored(ctx context.Context, what string, update postgres.Statement) (Epoch, error) {
	var e Epoch
	err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
		n, err := tx.Run(ctx, update, nil)
		if err != nil {
			return err
		}
		if n == 0 {
			return ErrNothingHeld
		}
		e, err = readEpoch(ctx, tx)
		return err
	})
	return e, wrap(what, err)
}
