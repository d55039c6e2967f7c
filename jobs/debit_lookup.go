package jobs

import (
	"context"
	"errors"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// lookupTimeout bounds the admission and the call of one look-up by an operator.
const lookupTimeout = 15 * time.Second

// DebitLookup is the rail's answer about a key, beside what the service knows.
type DebitLookup struct {
	Known  models.KeyedDebit
	Answer rail.Result
}

// LookupDebit asks the rail about a key for an operator. It changes nothing: the workers learn the
// same by themselves. The key becomes the subject of the context's act. rail.ErrInvalidKey: the
// text cannot be a key.
func LookupDebit(ctx context.Context, store *models.Store, payments rail.Rail, key string) (DebitLookup, error) {
	if err := rail.ValidateKey(key); err != nil {
		return DebitLookup{}, err
	}
	known, err := store.DebitOfKey(ctx, key)
	if err != nil {
		return DebitLookup{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if payments.Admit(ctx, models.OrganisationID{}, 1) == 0 {
		return DebitLookup{}, errors.Join(errors.New("jobs: the rail admits no call"), ctx.Err())
	}
	look := DebitLookup{Known: known}
	payments.Lookup(ctx, []string{key}, func(_ int, r rail.Result) { look.Answer = r })
	return look, nil
}
