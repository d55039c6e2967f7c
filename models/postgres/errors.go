package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"partnerbilling/models/coalesce"
)

// ErrUnavailable says that Postgres is unreachable, or that too many calls wait for it. It is
// unknown whether the transaction was committed. Test with errors.Is.
var ErrUnavailable = errors.New("postgres: database unavailable")

// Postgres error codes of temporary conditions.
const (
	codeSerializationFailure = "40001"
	codeDeadlockDetected     = "40P01"
	codeReadOnly             = "25006" // of a standby, or a primary that is being demoted
	codeNotInState           = "55000" // "recovery is in progress" among others
	codeStatementTimeout     = "57014" // query_canceled
	codeLockTimeout          = "55P03" // lock_not_available
	codeConnectionClass      = "08"    // prefix of connection failures
	codeResourcesClass       = "53"    // prefix of too_many_connections, disk_full, out_of_memory
	codeOperatorClass        = "57P"   // prefix of admin_shutdown, crash_shutdown, cannot_connect_now
)

// isRetryable reports whether Postgres rolled a transaction back because of a conflict with others.
func isRetryable(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == codeSerializationFailure || pg.Code == codeDeadlockDetected)
}

// IsLockTimeout reports whether a statement was refused because it would have waited for a lock
// longer than lock_timeout.
func IsLockTimeout(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == codeLockTimeout
}

// isReadOnlyCode reports whether a server that answers with the code accepts no writes.
func isReadOnlyCode(code string) bool { return code == codeReadOnly }

// classify wraps errors of an unavailable Postgres in ErrUnavailable. Errors caused by the end of
// the caller's own context stay as they are. The deadline of a batched call belongs to no caller:
// it passes only while Postgres does not answer in time.
func classify(ctx context.Context, err error) error {
	gaveUp := ctx.Err() != nil && !errors.Is(context.Cause(ctx), coalesce.ErrTimeout)
	if gaveUp || errors.Is(err, ErrUnavailable) || !isConnectionError(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// isConnectionError reports whether err says that Postgres is unreachable or cannot serve now.
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

// redactDSN replaces the error of a parser, which may quote a password of the DSN.
func redactDSN(err error) error {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return errors.New("cannot be parsed")
	}
	return err
}

// IsUntouched reports whether a statement that ended with err certainly changed nothing: it was
// never sent, or Postgres reports its failure. Two reports prove nothing: a server that is shutting
// down may report the failure of a committed statement, and a pooler may report a failure because
// it lost the answer.
func IsUntouched(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return !strings.HasPrefix(pg.Code, codeOperatorClass) && !strings.HasPrefix(pg.Code, codeConnectionClass)
	}
	var connect *pgconn.ConnectError
	return errors.As(err, &connect) || errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err)
}
