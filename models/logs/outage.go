package logs

import (
	"errors"
	"log/slog"

	"partnerbilling/models"
)

// outageKey is the name of the attribute of Outage.
const outageKey = "outage"

// The dependencies that an outage may concern.
const (
	Postgres  = "postgres"
	Replica   = "replica" // of Postgres
	Redis     = "redis"
	Collector = "collector" // of spans
)

// OutageError marks an error as the failure of a dependency, such as Redis. Postgres does not need
// the mark: its failures are models.ErrUnavailable.
type OutageError struct {
	Dependency string
	Err        error
}

// Error implements error.
func (e *OutageError) Error() string { return e.Err.Error() }

// Unwrap returns the marked error.
func (e *OutageError) Unwrap() error { return e.Err }

// OfRedis marks an error as a failure of Redis; nil stays nil.
func OfRedis(err error) error {
	if err == nil {
		return nil
	}
	return &OutageError{Redis, err}
}

// Outage returns the attribute that names the dependency whose failure err is, for a record about
// err. NewHandler's handler limits the records with this attribute. For other errors the attribute
// is empty, and slog leaves it out.
func Outage(err error) slog.Attr {
	var marked *OutageError
	switch {
	case errors.As(err, &marked):
		return OutageOf(marked.Dependency)
	case errors.Is(err, models.ErrUnavailable):
		return OutageOf(Postgres)
	default:
		return slog.Attr{}
	}
}

// OutageOf returns the attribute of Outage for a given dependency.
func OutageOf(dependency string) slog.Attr { return slog.String(outageKey, dependency) }
