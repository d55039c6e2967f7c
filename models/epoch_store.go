package models

import (
	"context"
	"errors"

	"partnerbilling/models/postgres"
)

// ErrNothingHeld says that no restored work awaits a decision.
var ErrNothingHeld = errors.New("models: no restored work is held")

var (
	epochSQL = postgres.SQL(`
SELECT c.epoch AS number, c.held_before,
    (SELECT count(*) FROM batches WHERE settled_at IS NULL AND epoch < c.epoch)
    + (SELECT count(*) FROM payment_intents WHERE state <> 'final' AND epoch < c.epoch) AS in_doubt
FROM current_epoch(:rail_memory) c`)
	beginEpochSQL = postgres.SQL(`
UPDATE database_epoch SET epoch = epoch + 1, began_at = svc_now(), held_before = epoch + 1`)
	resumeRestoredSQL = postgres.SQL(`UPDATE database_epoch SET held_before = 0 WHERE held_before > 0`)
	cancelRestoredSQL = postgres.SQL(`
UPDATE database_epoch SET cancelled_before = held_before, held_before = 0 WHERE held_before > 0`)
)

// Epoch returns the database's current epoch. If the server, or its timeline, differs from the
// recorded one, Epoch begins a new epoch first.
func (s *Store) Epoch(ctx context.Context) (Epoch, error) {
	var e Epoch
	err := s.pg.InTx(ctx, func(tx postgres.Tx) (err error) {
		e, err = readEpoch(ctx, tx)
		return err
	})
	return e, wrap("epoch", err)
}

// readEpoch does what Store.Epoch does, inside a database transaction.
func readEpoch(ctx context.Context, tx postgres.Tx) (Epoch, error) {
	var e Epoch
	err := tx.Get(ctx, epochSQL, postgres.Args{"rail_memory": RailMemory.Milliseconds()}, &e)
	return e, err
}

// BeginEpoch begins an epoch after a restore of the database. Epoch cannot detect the restore of a
// storage snapshot, which keeps the server's identity and timeline. A restore may lose commits,
// even those of cancellations and revocations. BeginEpoch therefore holds the unfinished work of
// earlier epochs until ResumeRestored or CancelRestored.
func (s *Store) BeginEpoch(ctx context.Context) (Epoch, error) {
	var e Epoch
	actFrom(ctx).about(SubjectDatabase, "").with("decision", "hold")
	err := s.act(ctx, func(tx postgres.Tx) (err error) {
		if _, err = readEpoch(ctx, tx); err != nil { // on a new server, this read begins an epoch
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

// ResumeRestored releases the held work. Workers look each row and payment up on the rail, and make
// the debits that the rail has never seen. ErrNothingHeld: no work is held.
func (s *Store) ResumeRestored(ctx context.Context) (Epoch, error) {
	return s.decideRestored(ctx, "resume", func(tx postgres.Tx) error {
		return releaseRestored(ctx, tx, resumeRestoredSQL)
	})
}

// CancelRestored releases the held work for cancellation. Workers cancel each row and payment on
// the rail, so that none is debited from then on. Debits that the rail has already made stay. Tasks
// that a pause of debits postponed do not wait for its end. ErrNothingHeld: no work is held.
func (s *Store) CancelRestored(ctx context.Context) (Epoch, error) {
	return s.decideRestored(ctx, "cancel", func(tx postgres.Tx) error {
		// The epoch is updated before the pauses are read. A statement that postpones a task locks
		// the epoch: it either sees the decision, or its task is found by the task that wakes it.
		if err := releaseRestored(ctx, tx, cancelRestoredSQL); err != nil {
			return err
		}
		var paused []OrganisationID
		if err := tx.Select(ctx, pausedSQL, nil, &paused); err != nil || len(paused) == 0 {
			return err
		}
		_, err := addWakeTasks(ctx, tx, paused...)
		return err
	})
}

// decideRestored stores an operator's decision about held work.
func (s *Store) decideRestored(ctx context.Context, decision string, decide func(postgres.Tx) error) (Epoch, error) {
	var e Epoch
	actFrom(ctx).about(SubjectDatabase, "").with("decision", decision)
	err := s.act(ctx, func(tx postgres.Tx) error {
		err := decide(tx)
		if err == nil {
			e, err = readEpoch(ctx, tx)
		}
		return err
	})
	return e, wrap(decision+" restored work", err)
}

// releaseRestored ends the hold by one of the statements. ErrNothingHeld: no work is held.
func releaseRestored(ctx context.Context, tx postgres.Tx, release postgres.Statement) error {
	n, err := tx.Run(ctx, release, nil)
	if err == nil && n == 0 {
		err = ErrNothingHeld
	}
	return err
}
