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
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		_, err := migrations.Up(ctx, store.DB())
		if failed := (*pgconn.ConnectError)(nil); !errors.As(err, &failed) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-again.C:
		}
	}
}
