package api

import (
	"context"
	"errors"
	"testing"
	"time"

	"partnerbilling/deploy/local/localtest"
	"partnerbilling/models"
	"partnerbilling/models/postgres"
)

// A body that is refused anyway waits only briefly for a database that does not answer.
func TestRefusedExpiryDoesNotWaitForPostgres(t *testing.T) {
	t.Parallel()
	dsn := "postgres://x@" + localtest.SilentAddress(t) + "/x?sslmode=disable"
	store, err := models.Open(postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // less than a connection attempt may take
	defer cancel()
	faults := errors.New("amount must be greater than 0")
	if got := new(Request).joinExpiryFault(ctx, faults, store, 1, models.CheckIntentExpiry); !errors.Is(got, faults) {
		t.Errorf("the answer lists %v", got)
	}
	if err := ctx.Err(); err != nil {
		t.Error("the refusal waited for the database")
	}
}
