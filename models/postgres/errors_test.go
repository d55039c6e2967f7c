package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"partnerbilling/models/coalesce"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// Only an error that rules the statement's effect out counts. A pooler that loses its server after
// COMMIT reports 08P01, a server that shuts down 57P01.
func TestIsUntouched(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&pgconn.PgError{Code: "23505"}, true},
		{&pgconn.PgError{Code: "40P01"}, true},
		{&pgconn.ConnectError{}, true},
		{&pgconn.PgError{Code: "57P01"}, false},
		{&pgconn.PgError{Code: "08P01", Message: "server conn crashed?"}, false},
		{errors.New("unexpected EOF"), false},
	} {
		if got := postgres.IsUntouched(c.err); got != c.want {
			t.Errorf("%v: %t, want %t", c.err, got, c.want)
		}
	}
}

// A frozen Postgres is unavailable to a batched call that reaches its deadline. A caller whose own
// context ends learns nothing about Postgres.
func TestDeadlineOfABatchedCall(t *testing.T) {
	t.Parallel()
	line, dsn := modelstest.Wire(t, modelstest.DSN(t))
	db := open(t, postgres.Config{DSN: dsn, MaxConns: 2})
	openConns(t, db, 2)
	line.Freeze()
	for name, c := range map[string]struct {
		cause       error
		unavailable bool
	}{
		"batched call": {coalesce.ErrTimeout, true},
		"caller":       {nil, false},
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, c.cause)
		err := db.InTx(ctx, func(postgres.Tx) error { return nil })
		cancel()
		if err == nil || errors.Is(err, postgres.ErrUnavailable) != c.unavailable {
			t.Errorf("%s: error %v, want ErrUnavailable: %t", name, err, c.unavailable)
		}
	}
}
