package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// statementLimit gives every statement a deadline, and ends it early if the server has abandoned
// it. It implements pgx.QueryTracer, which sees all statements of the pool, BEGIN and COMMIT
// included.
type statementLimit struct {
	limit       time.Duration
	condemn     func()
	isAbandoned func(ctx context.Context, backend uint32) bool
}

// limitedContext is the context of one statement.
type limitedContext struct {
	context.Context
	caller context.Context // distinguishes the caller's end from the statement's
	cancel context.CancelFunc
	probe  *time.Timer
}

// Err implements context.Context. To the driver, an abandoned statement has exceeded its deadline.
func (l *limitedContext) Err() error {
	err := l.Context.Err()
	if err != nil && l.caller.Err() == nil {
		return context.DeadlineExceeded
	}
	return err
}

// TraceQueryStart implements pgx.QueryTracer: the statement runs under the context that it returns.
func (s *statementLimit) TraceQueryStart(
	ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData,
) context.Context {
	limit := s.limit
	if longer, ok := ctx.Value(limitKey{}).(time.Duration); ok {
		limit = longer
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= min(limit, probeAfter) {
		return ctx
	}
	statement := &limitedContext{caller: ctx}
	statement.Context, statement.cancel = context.WithTimeout(ctx, limit)
	backend := conn.PgConn().PID()
	statement.probe = time.AfterFunc(probeAfter, func() {
		if s.isAbandoned(statement, backend) {
			statement.cancel()
		}
	})
	return statement
}

// TraceQueryEnd implements pgx.QueryTracer. The server's timeout precedes the limit. A statement
// that reaches the limit, or that is abandoned, shows that the server does not answer on this
// connection. TraceQueryEnd then retires all open connections: they may fail alike.
func (s *statementLimit) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	statement, ok := ctx.(*limitedContext)
	if !ok {
		return
	}
	statement.probe.Stop()
	if data.Err != nil && statement.Err() != nil && statement.caller.Err() == nil {
		s.condemn()
	}
	statement.cancel()
}

// limitKey is the context's key of a longer limit.
type limitKey struct{}
