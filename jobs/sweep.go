package jobs

import (
	"context"
	"errors"
	"fmt"

	"partnerbilling/models"
)

// sweepLimit is the limit that each step of a sweep gets. A step is one short database transaction,
// or several. No lock is held between steps.
const sweepLimit = 500

// Sweep is a recurring job in bounded steps. A step changes state in Postgres and calls no other
// system.
type Sweep struct {
	Store *models.Store
	Name  string // for errors
	// Steps run in order. A step handles at most limit items and returns their number. It is
	// repeated until it returns less than the limit.
	Steps []func(ctx context.Context, limit int) (int, error)
}

// Run implements queue.Job. A failed or timed-out step ends the run. The next run continues.
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

// ExpireInvitations returns the sweep that marks overdue invitations as expired, and folds changes
// of customer links into the totals of lists. Reads are right without it. It keeps the stored
// states close to the effective states, and the totals cheap to read.
func ExpireInvitations(store *models.Store) *Sweep {
	return &Sweep{Store: store, Name: "expire invitations", Steps: []func(context.Context, int) (int, error){
		store.ExpireInvitations,
		func(ctx context.Context, limit int) (int, error) {
			n, err := store.FoldLinkChanges(ctx, limit*10) // one write folds many changes
			return n / 10, err
		},
	}}
}

// ExpirePaymentIntents returns the sweep that ends the payment intents that are past their expiry.
// A read may have ended one before. Steps are small, since the end of each intent writes an event.
func ExpirePaymentIntents(store *models.Store) *Sweep {
	return &Sweep{Store: store, Name: "expire payment intents", Steps: []func(context.Context, int) (int, error){
		func(ctx context.Context, limit int) (int, error) {
			n, err := store.ExpirePaymentIntents(ctx, limit/10)
			return n * 10, err
		},
	}}
}

// CloseBatches returns the sweep that settles batches by their deadlines. When a batch's time for
// attempts has ended, the sweep closes the rows for which no debit call was made. At the deadline
// it settles all open rows. It never calls the rail.
func CloseBatches(store *models.Store) *Sweep {
	return &Sweep{Store: store, Name: "close batches", Steps: []func(context.Context, int) (int, error){
		batchByBatch(func(ctx context.Context) error { _, err := store.CloseUnsentRows(ctx); return err }),
		batchByBatch(func(ctx context.Context) error { _, err := store.CloseOverdueBatch(ctx); return err }),
	}}
}

// batchByBatch returns a step that calls closeOne, which closes one batch, until that returns
// models.ErrNotFound. The step's items are batches.
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

// ReleaseWebhooks returns the sweep that releases parked webhook events whose endpoint has
// capacity.
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
