package jobs

import (
	"context"
	"errors"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// lookupTimeout bounds one look-up by an operator: the wait for the rail's admission, and the call.
const lookupTimeout = 15 * time.Second

// DebitLookup is all that is known about the debit under a rail key.
type DebitLookup struct {
	Known  models.KeyedDebit // the service's record
	Answer rail.Result       // the rail's answer
}

// LookupDebit asks the rail about a rail key, for an operator. It changes no row or payment:
// workers get the rail's answers by themselves. The key becomes the subject of the context's act.
// Errors: rail.ErrInvalidKey if the text cannot be a key; another error if the database fails, or
// if the rail admits no call within lookupTimeout. A rail that does not answer is no error, but an
// Answer of status rail.Unknown.
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
