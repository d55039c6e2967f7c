package models

import (
	"context"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"partnerbilling/models/postgres"
)

var (
	// replicaPositionSQL reads how far the primary's commits have got. The column history changes
	// with each promotion, each restore, and each epoch that an operator begins.
	replicaPositionSQL = postgres.SQL(`
SELECT e.epoch || '/' || s.system_identifier || '/' || s.timeline AS history, pg_current_wal_flush_lsn()::text AS lsn,
       extract(epoch FROM statement_timestamp())::float8 * 1000 AS at
FROM database_epoch e, server_identity s`)
	// replicaStatusSQL runs on a standby and compares it with a position of the primary. follows is
	// true only if the standby has replayed the row that records the position's history.
	replicaStatusSQL = postgres.SQL(`
SELECT pg_is_in_recovery() AND e.epoch || '/' || e.system_identifier || '/' || e.timeline = :history AS follows,
       w.behind,
       CASE WHEN w.behind > 0
            THEN coalesce(extract(epoch FROM statement_timestamp() - pg_last_xact_replay_timestamp()), 0)
            ELSE 0 END::float8 AS lag_seconds,
       extract(epoch FROM statement_timestamp())::float8 * 1000 - :at::float8 AS clock_lead
FROM database_epoch e, LATERAL (
    SELECT greatest(0, coalesce(pg_wal_lsn_diff(:lsn::text::pg_lsn, pg_last_wal_replay_lsn()), 1))::bigint) w (behind)`)
)

// ErrNoReplica says that the Store has no replica.
var ErrNoReplica = errors.New("models: no replica is configured")

// Replica is a standby of Postgres that answers reads; see [ReadReplica].
type Replica struct{ pg *postgres.Replica }

// OpenReplica prepares a pool of connections to a standby without connecting.
func OpenReplica(cfg postgres.Config) (*Replica, error) {
	pg, err := postgres.OpenReplica(cfg, postgres.ReplicaStatements{
		Position: replicaPositionSQL, Status: replicaStatusSQL,
	})
	if err != nil {
		return nil, err
	}
	return &Replica{pg}, nil
}

// DB returns the handle of the pool, for statistics and test kits.
func (r *Replica) DB() *bun.DB { return r.pg.Bun() }

// Close closes the pool.
func (r *Replica) Close() error { return r.pg.Close() }

// UseReplica makes reads of contexts from [ReadReplica] run on the replica. It must precede every
// other call. Several Stores may share a replica. The Store does not close it.
func (s *Store) UseReplica(r *Replica) { s.pg.UseReplica(r.pg) }

// ReadReplica returns a context in which the Store's reading methods may run on the replica. The
// service uses it for pages and CSV alone; JSON for partners, writes and workers stay on the
// primary. Without a replica it changes nothing.
//
// The replica answers only if it has replayed everything that the primary had flushed before the
// first read of the context. Only claims of tasks and events commit without a flush: a read may
// miss them for a moment. It follows:
//
//   - A page shows all acts that were committed before the page was requested, also those of other
//     operators. So no session has to remember its acts.
//   - A page and a CSV show everything that an earlier JSON answer showed.
//   - A standby that lags is not used. An idle primary does not make its standby lag.
//   - A standby whose clock is behind the primary's, or too far ahead, is not used: deadlines and
//     expiry depend on the clock.
//   - A standby with another history, such as that of a demoted primary, is not used.
//
// The price is one cheap statement on the primary for each context. If the replica has not replayed
// enough within postgres.Config.ReplicaWait, does not answer, or refuses a statement, the primary
// answers. Unless the replica refused a statement, all reads then skip it for five seconds. After
// that, one read tries it again while the others still skip it.
//
// Standbys refuse writes. A write in such a context runs on the primary, and so does every later
// read of the context. Some reads write: the read that finds a batch past its deadline settles it.
func ReadReplica(ctx context.Context) context.Context { return postgres.WithReplica(ctx) }

// ReadsReplica reports whether the Store has a replica and the context is from [ReadReplica].
func (s *Store) ReadsReplica(ctx context.Context) bool { return s.pg.ReadsReplica(ctx) }

// ReplicaState is the state of the replica, and what this process has read from it.
type ReplicaState struct {
	// Err says why reads do not use the replica; nil: they do.
	Err error
	// Lag is the age of the last commit that the replica has replayed, 0 if it has replayed all. It
	// is negative if it is not known: the replica does not answer, or does not follow the primary.
	Lag time.Duration
	// Served is the number of reads that the replica has answered.
	Served int64
	// Fallbacks holds the number of contexts with reads that turned to the primary, by reason.
	Fallbacks map[postgres.Fallback]int64
}

// ReplicaState compares the replica with the primary now. While the primary answers, it takes at
// most postgres.Config.ReplicaWait. Without a replica, Err is ErrNoReplica.
func (s *Store) ReplicaState(ctx context.Context) ReplicaState {
	r := s.pg.Replica()
	if r == nil {
		return ReplicaState{Err: ErrNoReplica, Lag: -1}
	}
	status, err := s.pg.ReplicaStatus(ctx)
	state := ReplicaState{Err: err, Lag: -1, Served: r.Served(), Fallbacks: map[postgres.Fallback]int64{}}
	if err == nil || errors.Is(err, postgres.ErrReplicaBehind) {
		state.Lag = time.Duration(status.LagSeconds * float64(time.Second))
	}
	for _, reason := range postgres.Fallbacks {
		state.Fallbacks[reason] = r.FellBack(reason)
	}
	return state
}
