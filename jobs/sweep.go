package jobs

import (
	"context"
	"errors"
	"fmt"

	"partnerbilling/models"
)

// sweepStep is how much one step of a sweep moves at the most. A step is one short transaction; nothing is locked
// between steps.
const sweepStep = 500

// Sweep is recurring work in bounded steps, each of which moves state and calls nobody.
type Sweep struct {
	Store *models.Store
	Name  string
	// Steps are run in order, each until it reports that less than the limit was there.
	Steps []func(ctx context.Context, limit int) (int, error)
}

// Run takes the sweep to its end. What fails, or is not reached in the task's time, is left to the task's next run.
func (s *Sweep) Run(ctx context.Context, task models.Task) error {
	for _, step := range s.Steps {
		for n := sweepStep; n >= sweepStep; {
			var err error
			if n, err = step(ctx, sweepStep); err != nil {
				return fmt.Errorf("jobs: %s: %w", s.Name, err)
			}
		}
	}
	return s.Store.FinishTask(ctx, task.ID)
}

// ExpireInvitations turns invitations past expiry to expired, and folds what has happened to links into their counts. Reads do not
// wait for either; it keeps the stored state, and with it the indexes, close to the effective one, and totals cheap.
func ExpireInvitations(store *models.Store) *Sweep {
	return &Sweep{Store: store, Name: "expire invitations", Steps: []func(context.Context, int) (int, error){
		store.ExpireInvitations,
		func(ctx context.Context, limit int) (int, error) {
			n, err := store.FoldLinkChanges(ctx, limit*10) // many meet in one row of counts
			return n / 10, err
		},
	}}
}

// ExpirePaymentIntents ends the payment intents whose time is over and that nobody has looked at since. Each has an event to
// be written with it, so that the steps are small.
func ExpirePaymentIntents(store *models.Store) *Sweep {
	return &Sweep{Store: store, Name: "expire payment intents", Steps: []func(context.Context, int) (int, error){
		func(ctx context.Context, limit int) (int, error) {
			n, err := store.ExpirePaymentIntents(ctx, limit/10)
			return n * 10, err
		},
	}}
}

// CloseBatches closes rows that no debit call was begun for once the time for attempts is over, and settles what is open
// at its deadline. It never asks the rail.
func CloseBatches(store *models.Store) *Sweep {
	return &Sweep{Store: store, Name: "close batches", Steps: []func(context.Context, int) (int, error){
		batchByBatch(func(ctx context.Context) error { _, err := store.CloseUnsentRows(ctx); return err }),
		batchByBatch(func(ctx context.Context) error { _, err := store.CloseOverdueBatch(ctx); return err }),
	}}
}

// batchByBatch is a step that handles one batch a call, until closeOne finds none.
func batchByBatch(closeOne func(context.Context) error) func(context.Context, int) (int, error) {
	return func(ctx context.Context, limit int) (int, error) {
		for n := range limit {
			if err := closeOne(ctx); errors.Is(err, models.ErrNotFound) {
				return n, nil
			} else if err != nil {
				return n, err
			}
		}
		return limit, nil
	}
}

// DropHistory deletes what its retention no longer keeps.
func DropHistory(store *models.Store) *Sweep {
	return &Sweep{Store: store, Name: "drop history", Steps: []func(context.Context, int) (int, error){
		func(ctx context.Context, limit int) (int, error) {
			n, err := store.DropOldBatches(ctx, limit/100) // a batch has up to 1000 rows
			return n * 100, err
		},
		store.PurgeIdempotencyKeys,
		store.DropOldWebhookEvents,
	}}
}
