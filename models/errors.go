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
	// ErrUnavailable: Postgres is unreachable, or too many calls wait for it. It is unknown whether
	// a database transaction was committed.
	ErrUnavailable = postgres.ErrUnavailable
	// ErrNotFound: the entity does not exist, or the caller's Site or organisation does not own it.
	ErrNotFound = errors.New("models: not found")
	// ErrCustomerReferenceActive: the customerReference has a linked customer, or an invitation
	// that can still be accepted.
	ErrCustomerReferenceActive = errors.New("models: customer reference has an active link")
	// ErrLinkExpired: the invitation of the customer link has expired.
	ErrLinkExpired = errors.New("models: link expired")
	// ErrLinkRevoked: the customer link was revoked.
	ErrLinkRevoked = errors.New("models: link revoked")
	// ErrLinkTaken: another customer has completed the sign-up.
	ErrLinkTaken = errors.New("models: link taken by another customer")
	// ErrNoLiveInvitation: the newest link of the customerReference is not an invitation that can
	// still be accepted.
	ErrNoLiveInvitation = errors.New("models: no live invitation")
	// ErrBatchInProgress: the batch has unsettled rows.
	ErrBatchInProgress = errors.New("models: batch in progress")
	// ErrNothingToRetry: no row of the batch is retryable; see RowOutcome.Retryable.
	ErrNothingToRetry = errors.New("models: nothing to retry")
	// ErrAlreadyRetried: the batch has been retried under another reference.
	ErrAlreadyRetried = errors.New("models: batch already retried")
	// ErrBatchReferenceTaken: another batch has the batchReference.
	ErrBatchReferenceTaken = errors.New("models: batch reference taken")
	// ErrIdempotencyKeyReused: the idempotency key was used before with another body.
	ErrIdempotencyKeyReused = errors.New("models: idempotency key reused with another body")
	// ErrIdempotencyKeyInFlight: another request with the idempotency key has not finished.
	ErrIdempotencyKeyInFlight = errors.New("models: idempotency key in flight")
)

// FieldError describes a fault of one field of a request. It is for rules that depend on the
// database's clock or state.
type FieldError struct {
	Field   string // the field's name in JSON
	Message string // what the field must be, for the partner: "must be …"
}

func (e *FieldError) Error() string { return fmt.Sprintf("models: %s %s", e.Field, e.Message) }

// wrap adds what, the name of the operation, to an error. A nil error stays nil.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("models: %s: %w", what, err)
}

// notFound turns sql.ErrNoRows into ErrNotFound, and adds the noun of what was not found. Other
// errors pass unchanged.
func notFound(err error, noun string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return notFoundError(noun)
	}
	return err
}

// notFoundError returns ErrNotFound with the noun of what was not found.
func notFoundError(noun string) error { return fmt.Errorf("%s: %w", noun, ErrNotFound) }

// isForeignKeyViolation reports whether Postgres refused a row that refers to a missing row.
func isForeignKeyViolation(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23503"
}
