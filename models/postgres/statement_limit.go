package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// statementLimit gives every statement a deadline on the client's side, and ends a statement early
// if the server has abandoned it. It implements pgx.QueryTracer, through which it sees all
// statements of the pool, BEGIN and COMMIT included.
type statementLimit struct {
	limit       time.Duration // of statements without a longer limit
	condemn     func()        // retires all open connections
	isAbandoned func(ctx context.Context, backend uint32) bool
}

// limitedContext is the context of one statement.
type limitedContext struct {
	context.Context
	caller context.Context // distinguishes the caller's end from the statement's
	cancel context.CancelFunc
	probe  *time.Timer // asks whether the server has abandoned the statement
}

// Err implements context.Context. To the driver, an abandoned statement has exceeded its deadline.
func (l *limitedContext) Err() error {
	err := l.Context.Err()
	if err != nil && l.caller.Err() == nil {
		return context.DeadlineExceeded
	}
	return err
}

// TraceQueryStart implements pgx.QueryTracer. The statement runs under the context that
// TraceQueryStart returns: ctx itself if ctx ends before the limit and the probe, else a
// limitedContext.
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

// limitKey is the context key of a longer limit; see Tx.AllowLongStatements.
type limitKey struct{}
