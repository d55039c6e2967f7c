package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"
)

const (
	// defaultReplicaWait is the default of Config.ReplicaWait.
	defaultReplicaWait = 500 * time.Millisecond
	// replicaSuspension is how long reads skip the replica after it was unavailable or behind.
	// After that, one read tries the replica.
	replicaSuspension = 5 * time.Second
	// replicaStatementTimeout ends a statement on the replica. If the replica has not answered
	// answerGrace later, the pool retires its connections.
	replicaStatementTimeout = 2 * time.Second
	// replayPoll is the interval between checks of a replica that is behind.
	replayPoll = 5 * time.Millisecond
	// maxClockLead bounds how far the replica's clock may be ahead of the primary's.
	maxClockLead = time.Second
)

// Fallback is the reason why the reads of a context turned from the replica to the primary.
type Fallback string

// The reasons.
const (
	// FallbackUnavailable: the replica does not answer in time, is starting, or is not a standby of
	// the primary.
	FallbackUnavailable Fallback = "unavailable"
	// FallbackBehind: the replica lacks commits that the primary had at the beginning of the read.
	FallbackBehind Fallback = "behind"
	// FallbackRefused: the replica ended the statement, for example because replay conflicts with
	// it.
	FallbackRefused Fallback = "refused"
	// FallbackBusy: all connections to the replica are in use.
	FallbackBusy Fallback = "busy"
	// FallbackSuspended: the replica was unavailable or behind moments ago.
	FallbackSuspended Fallback = "suspended"
	// FallbackWrite: a write of the same context came first.
	FallbackWrite Fallback = "write"
)

// Fallbacks are all reasons.
var Fallbacks = []Fallback{
	FallbackUnavailable, FallbackBehind, FallbackRefused, FallbackBusy, FallbackSuspended, FallbackWrite,
}

var (
	// ErrReplicaBehind says that a replica lacks commits of the primary, or that its clock is
	// wrong.
	ErrReplicaBehind = errors.New("postgres: the replica is behind the primary")
	// ErrReplicaForeign says that a server does not follow the primary: it is not a standby of the
	// primary, or since a failover or a restore it has another history of commits.
	ErrReplicaForeign = errors.New("postgres: the server does not follow the primary")
	// ErrNoPosition says that the primary's Position could not be read.
	ErrNoPosition  = errors.New("postgres: no position of the primary")
	errReplicaBusy = errors.New("postgres: all connections to the replica are in use")
)

// Position is a point in the history of a primary's commits.
type Position struct {
	// History identifies the history. A failover or a restore begins another one.
	History string
	LSN     string  // end of the WAL that the primary has flushed
	At      float64 // the primary's clock, in milliseconds of Unix time

	asked time.Time // when this process asked for it
}

// ReplicaStatus is the state of a standby relative to a position of its primary.
type ReplicaStatus struct {
	Follows    bool    // the server is a standby, and has the position's history
	Behind     int64   // bytes of WAL before the position that the standby has not replayed
	LagSeconds float64 // age of the last commit that it has replayed; 0 unless it is behind
	ClockLead  float64 // how far its clock is ahead of the position's, in milliseconds
}

// check returns nil if reads on the standby see everything that the primary had flushed at the
// position, and a clock that is neither behind the position's nor too far ahead of it. age is the
// time since this process asked for the position.
func (s ReplicaStatus) check(age time.Duration) error {
	switch limit := (maxClockLead + age).Milliseconds(); {
	case !s.Follows:
		return ErrReplicaForeign
	case s.Behind > 0:
		return fmt.Errorf("%w by %d bytes", ErrReplicaBehind, s.Behind)
	case s.ClockLead < 0 || s.ClockLead > float64(limit):
		return fmt.Errorf("%w: its clock differs by %.0f ms", ErrReplicaBehind, s.ClockLead)
	default:
		return nil
	}
}

// ReplicaStatements are the statements that compare a replica with the primary. The caller supplies
// them.
type ReplicaStatements struct {
	Position Statement // returns a Position, on the primary
	Status   Statement // returns a ReplicaStatus, on the replica; arguments: history, lsn and at
}

// Replica is a pool of connections to standbys for reads; see DB.Read. It is safe for concurrent
// use. Several DBs may share it.
type Replica struct {
	db         *DB
	statements ReplicaStatements
	conns      int64         // number for reads; ReplicaStatus has another one
	wait       time.Duration // Config.ReplicaWait
	running    atomic.Int64  // reads in progress
	suspension suspension
	served     atomic.Int64               // reads that the replica has answered
	fallbacks  map[Fallback]*atomic.Int64 // contexts that turned to the primary
}

// OpenReplica prepares a pool without connecting. cfg.DSN names the standbys. OpenReplica ignores
// cfg.StatementTimeout. It refuses a pooler, which may run the check of a standby and the read on
// different servers.
func OpenReplica(cfg Config, statements ReplicaStatements) (*Replica, error) {
	if cfg.Pooled {
		return nil, errors.New("postgres: a replica needs direct connections, not a pooler")
	}
	cfg.standby, cfg.StatementTimeout = true, replicaStatementTimeout
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = defaultMaxConns
	}
	cfg.MaxConns++ // for ReplicaStatus
	db, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.ReplicaWait <= 0 {
		cfg.ReplicaWait = defaultReplicaWait
	}
	r := &Replica{
		db: db, statements: statements, conns: int64(db.Stats().MaxOpenConnections - 1), wait: cfg.ReplicaWait,
		suspension: suspension{now: db.conns.now}, fallbacks: map[Fallback]*atomic.Int64{},
	}
	for _, reason := range Fallbacks {
		r.fallbacks[reason] = &atomic.Int64{}
	}
	return r, nil
}

// Bun returns the pool's handle for Bun, for statistics and tests.
func (r *Replica) Bun() *bun.DB { return r.db.bun }

// Close closes the pool.
func (r *Replica) Close() error { return r.db.Close() }

// Served returns the number of reads that the replica has answered.
func (r *Replica) Served() int64 { return r.served.Load() }

// FellBack returns the number of contexts whose reads turned to the primary for a reason.
func (r *Replica) FellBack(reason Fallback) int64 { return r.fallbacks[reason].Load() }

// ReplicaStatus compares the replica, which must be set, with the primary now. It waits for the
// replica no longer than Config.ReplicaWait. ErrReplicaForeign and ErrReplicaBehind: the replica
// answers, but no read would use it. ErrNoPosition: the primary did not answer, and the replica was
// not asked.
func (db *DB) ReplicaStatus(ctx context.Context) (ReplicaStatus, error) {
	at, err := db.position(ctx)
	if err != nil {
		return ReplicaStatus{}, err
	}
	conn, status, err := db.replica.connect(ctx, at)
	if err != nil {
		return status, err
	}
	return status, conn.Close()
}

// position reads the position of the primary. Every error is ErrNoPosition.
func (db *DB) position(ctx context.Context) (at Position, err error) {
	asked := db.conns.now()
	if err = db.Get(withoutReading(ctx), db.replica.statements.Position, nil, &at); err != nil {
		err = fmt.Errorf("%w: %w", ErrNoPosition, err)
	}
	at.asked = asked
	return at, err
}

// try runs do on a standby that has replayed all that the primary had flushed at the position.
func (r *Replica) try(ctx context.Context, at Position, do func(conn *bun.Conn) error) error {
	defer r.running.Add(-1)
	if r.running.Add(1) > r.conns {
		return errReplicaBusy
	}
	conn, _, err := r.connect(ctx, at)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return do(&conn)
}

// connect returns a connection to a standby that has replayed the position, and the standby's
// status. Another connection may lead to another standby. After an error, conn is closed.
func (r *Replica) connect(ctx context.Context, at Position) (conn bun.Conn, status ReplicaStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	if conn, err = r.db.bun.Conn(ctx); err != nil {
		return conn, status, err
	}
	if status, err = r.await(ctx, conn, at); err != nil {
		_ = conn.Close()
	}
	return conn, status, err
}

// await waits until the standby has replayed the position. At the end of ctx it returns the error
// of the last status.
func (r *Replica) await(ctx context.Context, conn bun.Conn, at Position) (status ReplicaStatus, err error) {
	poll := time.NewTicker(replayPoll)
	defer poll.Stop()
	args := Args{"history": at.History, "lsn": at.LSN, "at": at.At}
	for {
		var next ReplicaStatus
		failed := sender{conn.Conn, r.db.bun}.get(ctx, r.statements.Status, args, []any{&next})
		switch {
		case failed != nil && ctx.Err() != nil && err != nil:
			return status, err
		case failed != nil:
			return status, failed
		}
		status, err = next, next.check(r.db.conns.now().Sub(at.asked))
		if !errors.Is(err, ErrReplicaBehind) {
			return status, err
		}
		select {
		case <-ctx.Done():
			return status, err
		case <-poll.C:
		}
	}
}

// judge returns why the primary must repeat a read that ended on the replica with err. It returns
// "" if the primary's answer would be the same. judge suspends the replica unless the cause
// concerns that read alone.
func (r *Replica) judge(err error) Fallback {
	var pg *pgconn.PgError
	why := FallbackUnavailable
	switch {
	case errors.Is(err, errReplicaBusy):
		return FallbackBusy
	case errors.As(err, &pg) && pg.Code == codeStatementTimeout:
	case errors.As(err, &pg) && !isFatal(pg):
		return FallbackRefused
	case errors.Is(err, ErrReplicaBehind):
		why = FallbackBehind
		r.db.conns.leaveHost()
	case errors.Is(err, ErrReplicaForeign):
		r.db.conns.leaveHost()
	case err == nil || !isConnectionError(err):
		return ""
	}
	r.suspension.begin()
	return why
}
