package models

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"partnerbilling/models/postgres"
)

// The errors that callers distinguish. Stores return them wrapped; test with errors.Is.
var (
	// ErrUnavailable: Postgres is unreachable, or too many calls wait for it. Whether the
	// transaction was committed is unknown.
	ErrUnavailable = postgres.ErrUnavailable
	// ErrNotFound: the entity does not exist, or not in this Site.
	ErrNotFound = errors.New("models: not found")
	// ErrCustomerReferenceActive: the reference has a link that is invited and not past expiry, or
	// linked.
	ErrCustomerReferenceActive = errors.New("models: customer reference has an active link")
	// ErrLinkExpired: the invitation has expired.
	ErrLinkExpired = errors.New("models: link expired")
	// ErrLinkRevoked: the link was revoked.
	ErrLinkRevoked = errors.New("models: link revoked")
	// ErrLinkTaken: another customer has completed the sign-up.
	ErrLinkTaken = errors.New("models: link taken by another customer")
	// ErrNoLiveInvitation: the newest link of the reference is not an open invitation.
	ErrNoLiveInvitation = errors.New("models: no live invitation")
	// ErrBatchInProgress: the batch has unsettled rows.
	ErrBatchInProgress = errors.New("models: batch in progress")
	// ErrNothingToRetry: no row of the batch is retryable.
	ErrNothingToRetry = errors.New("models: nothing to retry")
	// ErrAlreadyRetried: the batch has been retried under another reference.
	ErrAlreadyRetried = errors.New("models: batch already retried")
	// ErrBatchReferenceTaken: another batch has the reference.
	ErrBatchReferenceTaken = errors.New("models: batch reference taken")
	// ErrIdempotencyKeyReused: the key was used before with another body.
	ErrIdempotencyKeyReused = errors.New("models: idempotency key reused with another body")
	// ErrIdempotencyKeyInFlight: the first request with the key has not finished.
	ErrIdempotencyKeyInFlight = errors.New("models: idempotency key in flight")
)

// FieldError describes a fault of one request field that only the database's clock or state can
// judge.
type FieldError struct {
	Field   string // as written in JSON
	Message string // for the partner: "must be …"
}

func (e *FieldError) Error() string { return fmt.Sprintf("models: %s %s", e.Field, e.Message) }

// wrap adds the operation's name to an error. A nil error stays nil.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("models: %s: %w", what, err)
}

// notFound turns "no rows" into ErrNotFound, with the noun. Other errors pass unchanged.
func notFound(err error, noun string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return notFoundError(noun)
	}
	return err
}

// notFoundError returns ErrNotFound with the noun.
func notFoundError(noun string) error { return fmt.Errorf("%s: %w", noun, ErrNotFound) }

// isForeignKeyViolation reports whether a row refers to one that does not exist.
func isForeignKeyViolation(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23503"
}
