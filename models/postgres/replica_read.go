package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"
)

// UseReplica sets the replica for the reads whose context is from WithReplica. Call it before any
// other method.
func (db *DB) UseReplica(r *Replica) { db.replica = r }

// Replica returns the replica; nil: there is none.
func (db *DB) Replica() *Replica { return db.replica }

// WithReplica returns a context whose reads may run on the replica: Get, Select, InSnapshot and
// Read. See Read.
func WithReplica(ctx context.Context) context.Context {
	return context.WithValue(ctx, readingKey{}, &reading{})
}

// withoutReading returns a context whose reads run on the primary.
func withoutReading(ctx context.Context) context.Context {
	return context.WithValue(ctx, readingKey{}, (*reading)(nil))
}

// ReadsReplica reports whether there is a replica and the context is from WithReplica.
func (db *DB) ReadsReplica(ctx context.Context) bool {
	return db.replica != nil && readingOf(ctx) != nil
}

type readingKey struct{}

// reading is the state of a context from WithReplica.
type reading struct {
	onPrimary atomic.Bool // further reads run on the primary

	mu       sync.Mutex
	position *Position // of the primary before the first read; nil: not read yet
}

func readingOf(ctx context.Context) *reading {
	r, _ := ctx.Value(readingKey{}).(*reading)
	return r
}

// stayOnPrimary makes further reads run on the primary. A read or write that went to the primary
// must not be followed by an older read on the replica.
func (db *DB) stayOnPrimary(ctx context.Context, why Fallback) {
	of := readingOf(ctx)
	if of != nil && db.replica != nil && of.onPrimary.CompareAndSwap(false, true) {
		db.replica.fallbacks[why].Add(1)
	}
}

// since returns the position of the primary before the context's first read.
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

// source is where a read runs: a pool, or a connection to a replica.
type source struct {
	sender
	bun bun.IDB
}

// Read runs do, which reads with one statement or one transaction of Bun. Errors and retries are
// those of Do.
//
// With a context from WithReplica, do runs on the replica, if it has replayed all that the primary
// had flushed before the context's first read. So a replica's answer is never older than the
// request: each such context costs the primary one cheap statement, and needs no memory of earlier
// requests. If the replica lags, fails or refuses, do runs again on the primary, and further reads
// of the context stay there.
func (db *DB) Read(ctx context.Context, do func(on bun.IDB) error) error {
	return db.read(ctx, func(on source) error { return do(on.bun) })
}

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

// suspension is the breaker of a replica: a time during which reads skip the replica. After it, one
// read tries the replica; the others wait for its success, or for the next suspension to end. It is
// safe for concurrent use.
type suspension struct {
	now   func() time.Time
	mu    sync.Mutex
	until time.Time // zero: none
}

// admits reports whether a read may try the replica.
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
