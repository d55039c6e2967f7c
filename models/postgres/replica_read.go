package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"
)

// UseReplica makes reads whose context is from WithReplica run on the replica; see Read. Call it
// before any other method.
func (db *DB) UseReplica(r *Replica) { db.replica = r }

// Replica returns the replica; nil: there is none.
func (db *DB) Replica() *Replica { return db.replica }

// WithReplica returns a context in which the reading methods of a DB may run on the replica: Get,
// Select, InSnapshot and Read. See Read.
func WithReplica(ctx context.Context) context.Context {
	return context.WithValue(ctx, readingKey{}, &reading{})
}

// withoutReading returns a context in which reads run on the primary, although ctx is from
// WithReplica.
func withoutReading(ctx context.Context) context.Context {
	return context.WithValue(ctx, readingKey{}, (*reading)(nil))
}

// ReadsReplica reports whether there is a replica and the context is from WithReplica.
func (db *DB) ReadsReplica(ctx context.Context) bool {
	return db.replica != nil && readingOf(ctx) != nil
}

// readingKey is the context key of a *reading.
type readingKey struct{}

// reading is the state of a context from WithReplica.
type reading struct {
	onPrimary atomic.Bool // further reads run on the primary

	mu       sync.Mutex
	position *Position // of the primary before the first read; nil: not read yet
}

// readingOf returns the state of a context from WithReplica; nil for other contexts.
func readingOf(ctx context.Context) *reading {
	r, _ := ctx.Value(readingKey{}).(*reading)
	return r
}

// stayOnPrimary makes further reads of a context run on the primary: after a read or write on the
// primary, a read on the replica might return older state. It counts the reason why.
func (db *DB) stayOnPrimary(ctx context.Context, why Fallback) {
	of := readingOf(ctx)
	if of != nil && db.replica != nil && of.onPrimary.CompareAndSwap(false, true) {
		db.replica.fallbacks[why].Add(1)
	}
}

// since returns the position of the primary before the context's first read. The first call reads
// it.
func (r *reading) since(ctx context.Context, db *DB) (Position, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.position == nil {
		at, err := db.position(ctx)
		if err != nil {
			return at, err
		}
		r.position = &at
	}
	return *r.position, nil
}

// source is where a read runs, the primary's pool or a connection to a replica, for statements and
// for Bun.
type source struct {
	sender
	bun bun.IDB
}

// Read runs do, which reads with one statement or one transaction of Bun. Errors and retries are
// those of Do.
//
// With a context from WithReplica, do runs on the replica if the replica has replayed all that the
// primary had flushed before the context's first read. A replica's answer is thus never older than
// the request. This costs the primary one cheap statement for each such context, and needs no
// memory of earlier requests. If the replica lags, fails or refuses, do runs again on the primary,
// and further reads of the context stay there.
func (db *DB) Read(ctx context.Context, do func(on bun.IDB) error) error {
	return db.read(ctx, func(on source) error { return do(on.bun) })
}

// read is Read for statements as well.
func (db *DB) read(ctx context.Context, do func(on source) error) error {
	if done, err := db.readReplica(ctx, do); done {
		return err
	}
	return db.Do(ctx, func() error { return do(source{db.sender(), db.bun}) })
}

// readReplica is Read on the replica. done is false if the primary has to answer.
func (db *DB) readReplica(ctx context.Context, do func(on source) error) (done bool, err error) {
	of, r := readingOf(ctx), db.replica
	if of == nil || r == nil || of.onPrimary.Load() {
		return false, nil
	}
	if !r.suspension.admits() {
		db.stayOnPrimary(ctx, FallbackSuspended)
		return false, nil
	}
	at, err := of.since(ctx, db)
	if err != nil {
		return true, err
	}
	err = r.try(ctx, at, func(conn *bun.Conn) error { return do(source{sender{conn.Conn, r.db.bun}, conn}) })
	if err != nil && ctx.Err() != nil {
		return true, errors.Join(ctx.Err(), err)
	}
	if why := r.judge(err); why != "" {
		db.stayOnPrimary(ctx, why)
		return false, nil
	}
	r.served.Add(1)
	r.suspension.end()
	return true, err
}

// suspension is the breaker of a replica: a time during which reads skip the replica. After that,
// one read tries the replica. The other reads skip it until that read succeeds, or until another
// suspension ends. It is safe for concurrent use.
type suspension struct {
	now   func() time.Time
	mu    sync.Mutex
	until time.Time // zero: none
}

// admits reports whether a read may try the replica. The read after a suspension begins another
// one, so that it tries the replica alone.
func (s *suspension) admits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until.IsZero() {
		return true
	}
	if s.now().Before(s.until) {
		return false
	}
	s.until = s.now().Add(replicaSuspension)
	return true
}

func (s *suspension) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = s.now().Add(replicaSuspension)
}

func (s *suspension) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Time{}
}
