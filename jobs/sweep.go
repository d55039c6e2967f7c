package jobs

import (
	"context"
	"errors"
	"fmt"

	"partnerbilling/models"
)

// sweepLimit is the maximum number of items of one step of a sweep. A step is one short
// transaction. No lock is held between steps.
const sweepLimit = 500

// Sweep is a recurring job in bounded steps. A step changes state in Postgres and calls no other
// system.
type Sweep struct {
	Store *models.Store
	Name  string
	// Steps run in order. Each is repeated until it returns less than the limit.
	Steps []func(ctx context.Context, limit int) (int, error)
}

// Run implements queue.Job. The next run continues after a failed or timed-out step.
func (s *Sweep) Run(ctx context.Context, task models.Task) error {
	for _, step := range s.Steps {
		for n := sweepLimit; n >= sweepLimit; {
			var err error
			if n, err = step(ctx, sweepLimit); err != nil {
				return fmt.Errorf("jobs: %s: %w", s.Name, err)
			}
		}
	}
	return s.Store.FinishTask(ctx, task.ID)
}

// ExpireInvitations returns the sweep that stores the expiry of invitations, and folds changes of
// customer links into their counts. Reads do not depend on it: it keeps the stored states and their
// indexes close to the effective states, and totals cheap to read.
func ExpireInvitations(store *models.Store) *Sweep {
	return &Sweep{Store: store, Name: "expire invitations", Steps: []func(context.Context, int) (int, error){
		store.ExpireInvitations,
		func(ctx context.Context, limit int) (int, error) {
			n, err := store.FoldLinkChanges(ctx, limit*10) // many changes go into one row of counts
			return n / 10, err
		},
	}}
}

// ExpirePaymentIntents returns the sweep that ends expired payment intents which no read has ended.
// Steps are small, since each intent writes an event.
func ExpirePaymentIntents(store *models.Store) *Sweep {
	return &Sweep{Store: store, Name: "expire payment intents", Steps: []func(context.Context, int) (int, error){
		func(ctx context.Context, limit int) (int, error) {
			n, err := store.ExpirePaymentIntents(ctx, limit/10)
			return n * 10, err
		},
	}}
}

// CloseBatches returns the sweep that closes rows without a debit call when the time for attempts
// has ended, and settles open batches at their deadline. It never calls the rail.
func CloseBatches(store *models.Store) *Sweep {
	return &Sweep{Store: store, Name: "close batches", Steps: []func(context.Context, int) (int, error){
		batchByBatch(func(ctx context.Context) error { _, err := store.CloseUnsentRows(ctx); return err }),
		batchByBatch(func(ctx context.Context) error { _, err := store.CloseOverdueBatch(ctx); return err }),
	}}
}

// batchByBatch returns a step that calls closeOne for one batch at a time, until it finds none.
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

// ReleaseWebhooks returns the sweep that releases parked events whose endpoint can take them.
func ReleaseWebhooks(store *models.Store) *Sweep {
	step := func(ctx context.Context, _ int) (int, error) {
		_, err := store.ReleaseWebhooks(ctx) // releases all that the bounds allow in one step
		return 0, err
	}
	return &Sweep{Store: store, Name: "release webhooks", Steps: []func(context.Context, int) (int, error){step}}
}

// DropHistory returns the sweep that removes data past its retention; see
// [models.TableRetentions].
func DropHistory(store *models.Store) *Sweep {
	return &Sweep{Store: store, Name: "drop history", Steps: store.RetentionSteps()}
}

// MakePartitions returns the sweep that makes partitions ahead of time; see
// [models.Store.MakePartitions].
func MakePartitions(store *models.Store) *Sweep {
	return &Sweep{Store: store, Name: "make partitions", Steps: []func(context.Context, int) (int, error){
		func(ctx context.Context, _ int) (int, error) { return 0, store.MakePartitions(ctx) },
	}}
}
