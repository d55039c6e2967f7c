package models

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// The errors that callers distinguish. Stores return them wrapped; test with errors.Is.
var (
	// ErrUnavailable: Postgres is unreachable, or too many calls wait for it. Whether the
	// transaction was committed is unknown.
	ErrUnavailable = errors.New("models: database unavailable")
	// ErrNotFound: there is no such thing in this Site.
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
	// ErrLeaseLost: another worker holds the rows now.
	ErrLeaseLost = errors.New("models: lease lost")
)

// ErrPanic is wrapped by the error that CatchPanic makes.
var ErrPanic = errors.New("models: panic")

// CatchPanic turns a panic of the deferring function into its error, with the stack. It is for
// goroutines that work on behalf of others, where an uncaught panic would end the process.
func CatchPanic(err *error) {
	if fault := recover(); fault != nil {
		*err = fmt.Errorf("%w: %v\n%s", ErrPanic, fault, debug.Stack())
	}
}

// FieldError describes a fault of one request field that only the database's clock or state can
// judge.
type FieldError struct {
	Field   string // as written in JSON
	Message string // for the partner: "must be …"
}

func (e *FieldError) Error() string { return fmt.Sprintf("models: %s %s", e.Field, e.Message) }

// Postgres error codes of temporary conditions.
const (
	codeSerializationFailure = "40001"
	codeDeadlockDetected     = "40P01"
	codeReadOnly             = "25006" // read_only_sql_transaction: a standby, or a primary that is being demoted
	codeNotInState           = "55000" // object_not_in_prerequisite_state: "recovery is in progress" among others
	codeStatementTimeout     = "57014"
	codeConnectionClass      = "08"
	codeResourcesClass       = "53"  // too_many_connections, disk_full, out_of_memory
	codeOperatorClass        = "57P" // admin_shutdown, crash_shutdown, cannot_connect_now
)

func isRetryable(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == codeSerializationFailure || pg.Code == codeDeadlockDetected)
}

// isReadOnlyCode reports whether a server that answers with the code accepts no writes.
func isReadOnlyCode(code string) bool { return code == codeReadOnly }

// classify wraps errors of an unavailable Postgres in ErrUnavailable. Errors caused by the end of
// the caller's own context stay as they are.
func classify(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, ErrUnavailable) || !isConnectionError(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

func isConnectionError(err error) bool {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) || isUnfit(err) {
		return true
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return isFatal(pg) || isUnavailableCode(pg.Code)
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed) || pgconn.SafeToRetry(err) || isUnexpectedEOF(err)
}

func isUnavailableCode(code string) bool {
	return isReadOnlyCode(code) || code == codeNotInState || code == codeStatementTimeout ||
		strings.HasPrefix(code, codeConnectionClass) || strings.HasPrefix(code, codeResourcesClass) ||
		strings.HasPrefix(code, codeOperatorClass)
}

func isUnexpectedEOF(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

// redactDSN removes a password that a parser quotes in its error.
func redactDSN(err error) error {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return errors.New("cannot be parsed")
	}
	return err
}
