package modelstest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"partnerbilling/migrations"
	"partnerbilling/models"
)

// Migrate applies the migrations to a database of the test's own server.
func Migrate(t testing.TB, store *models.Store) {
	t.Helper()
	if err := migrate(t.Context(), store); err != nil {
		t.Fatalf("modelstest: %v", err)
	}
}

// migrate is Migrate without a test. On a busy machine a connection attempt may time out: migrate
// repeats it for a minute.
func migrate(ctx context.Context, store *models.Store) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := migrations.Up(ctx, store.DB())
		var failed *pgconn.ConnectError
		if !errors.As(err, &failed) || ctx.Err() != nil {
			return err
		}
	}
}
