package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

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
