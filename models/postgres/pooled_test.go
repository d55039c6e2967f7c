package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// A statement that its caller gives up is cancelled on the server, but not through a pooler: the
// server ends it at its own timeout.
func TestPooledSendsNoCancelRequest(t *testing.T) {
	t.Parallel()
	for _, pooled := range []bool{false, true} {
		dsn := modelstest.DSN(t)
		db := open(t, postgres.Config{DSN: dsn, MaxConns: 1, Pooled: pooled})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := db.Bun().ExecContext(ctx, "SELECT pg_sleep(60)"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		const sleeping = `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND state = 'active' AND query = 'SELECT pg_sleep(60)'`
		observer, n := open(t, postgres.Config{DSN: dsn}), 1
		for end := time.Now().Add(time.Second); n > 0 && time.Now().Before(end); {
			if err := observer.Bun().QueryRowContext(t.Context(), sleeping).Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
		if (n > 0) != pooled {
			t.Errorf("pooled %t: %d statements run on", pooled, n)
		}
	}
}
