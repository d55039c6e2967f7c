// Package postgres connects the stores to PostgreSQL. A bounded pool leads to a server that accepts
// writes; another one may lead to a standby. The package adds deadlines, retries, the errors of an
// unavailable server, and statements with named arguments. It knows nothing of the service's
// tables.
package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

// Config configures a DB.
type Config struct {
	// DSN is a postgres:// URL. If it names several hosts, each connection uses the first host that
	// accepts writes, starting with the host of the last connection.
	DSN string
	// MaxConns bounds the pool; default 16.
	MaxConns int
	// MaxQueued bounds how many calls may wait for a connection. Further calls fail with
	// ErrUnavailable at once. 0: no bound.
	MaxQueued int
	// StatementTimeout ends a statement on the server; default 10 s. If the server does not answer
	// within 2 s after that, or has lost the statement, the statement fails with ErrUnavailable.
	// The pool then retires all open connections.
	StatementTimeout time.Duration
	// MaxConnAge is the age at which the pool replaces a connection; default 30 minutes. Each pool
	// adds up to a fifth at random, so that many processes do not reconnect at once.
	MaxConnAge time.Duration
	// ApplicationName is the name in pg_stat_activity.
	ApplicationName string
	// Pooled says that a pooler in transaction mode, such as PgBouncer, is in front of the server.
	// The pool then prepares no statements by name, and the role must have the settings of
	// sessions; see CheckSettings.
	Pooled bool
	// ReplicaWait bounds how long a read waits before it begins on a replica: for a connection, and
	// until the replica has replayed what the primary had flushed; default 500 ms.
	ReplicaWait time.Duration
	// standby says that connections lead to standbys. OpenReplica sets it.
	standby bool
}

// defaultMaxConns is the default of Config.MaxConns.
const defaultMaxConns = 16

// answerGrace is how long after Config.StatementTimeout a live server's answer may arrive.
const answerGrace = 2 * time.Second

// DB is a pool of connections. Every call has a deadline and is repeated after errors that change
// nothing: a deadlock, a serialization failure, a connection that was closed while idle. A DB is
// safe for concurrent use.
type DB struct {
	bun      *bun.DB
	conns    *connector
	limit    int64        // maximum of inside; 0: no bound
	inside   atomic.Int64 // calls that run or wait for a connection
	settings Settings     // of each session
	replica  *Replica     // nil: none
}

// Open prepares a pool without connecting. It refuses an invalid DSN.
func Open(cfg Config) (*DB, error) {
	conf, err := pgx.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, fmt.Errorf("postgres: database URL: %w", redactDSN(err))
	}
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = defaultMaxConns
	}
	if cfg.StatementTimeout <= 0 {
		cfg.StatementTimeout = DefaultStatementTimeout
	}
	if cfg.MaxConnAge <= 0 {
		cfg.MaxConnAge = 30 * time.Minute
	}
	settings := sessionSettings(cfg.StatementTimeout)
	prepareSessions(conf, cfg, settings)
	conns := newConnector(conf, cfg.Pooled, cfg.StatementTimeout+answerGrace)
	conns.standby = cfg.standby
	pool := sql.OpenDB(conns)
	pool.SetMaxOpenConns(cfg.MaxConns)
	pool.SetMaxIdleConns(cfg.MaxConns)
	pool.SetConnMaxIdleTime(connMaxIdle)
	pool.SetConnMaxLifetime(cfg.MaxConnAge + rand.N(cfg.MaxConnAge/5)) //nolint:gosec // spreads load, keeps no secret
	db := &DB{bun: bun.NewDB(pool, pgdialect.New()), conns: conns, settings: settings}
	if cfg.MaxQueued > 0 {
		db.limit = int64(cfg.MaxConns + cfg.MaxQueued)
	}
	return db, nil
}

// prepareSessions sets the parameters with which each connection begins its session. A pooler in
// transaction mode may run each transaction in another session, without the connection's settings
// and prepared statements. Behind a pooler, a connection thus sets and prepares nothing.
func prepareSessions(conf *pgx.ConnConfig, cfg Config, settings Settings) {
	conf.RuntimeParams["application_name"] = cfg.ApplicationName
	if cfg.Pooled {
		conf.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		return
	}
	for _, s := range settings {
		conf.RuntimeParams[s.Name] = s.Value
	}
}

// Bun returns the handle for Bun's models and query builder. Calls on it have a deadline, but
// neither the bound nor the retries of Do.
func (db *DB) Bun() *bun.DB { return db.bun }

// Close closes the pool. A replica stays open.
func (db *DB) Close() error { return db.bun.Close() }

// Ping checks that Postgres accepts writes. ErrUnavailable: Postgres does not answer, is a standby
// or read-only, or, after RequireDurability, would not flush commits.
func (db *DB) Ping(ctx context.Context) error {
	return db.Native(ctx, func(conn *pgx.Conn) error { return db.conns.recheck(ctx, conn.PgConn()) })
}

// Stats returns the pool's statistics, without those of a replica.
func (db *DB) Stats() sql.DBStats { return db.bun.Stats() }

// Reconnect retires every open connection. Statements in progress may finish.
func (db *DB) Reconnect() { db.conns.condemn() }

// attempts is the maximum number of attempts at a call, the first included.
const attempts = 4

// Do runs do, which sends one statement or one transaction. It repeats do after a deadlock or a
// serialization failure. ErrUnavailable: Postgres is unreachable, or too many calls wait for it.
//
// Later reads with the same context do not run on a replica, so that they see what do has written.
func (db *DB) Do(ctx context.Context, do func() error) error {
	db.stayOnPrimary(ctx, FallbackWrite)
	if n := db.inside.Add(1); db.limit > 0 && n > db.limit {
		db.inside.Add(-1)
		return fmt.Errorf("%w: the queue for a connection is full", ErrUnavailable)
	}
	defer db.inside.Add(-1)
	var err error
	for range attempts {
		if err = do(); !isRetryable(err) {
			break
		}
	}
	if err != nil {
		return classify(ctx, err)
	}
	return nil
}

// InTx runs do in one transaction, with the retries and errors of Do. After ErrUnavailable it is
// unknown whether the transaction was committed.
func (db *DB) InTx(ctx context.Context, do func(tx Tx) error) error {
	return db.Do(ctx, func() error {
		return db.bun.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return do(Tx{tx, db.bun}) })
	})
}

// InSnapshot runs do in a read-only transaction whose statements see one snapshot. It may run on
// the replica; see Read.
func (db *DB) InSnapshot(ctx context.Context, do func(tx Tx) error) error {
	options := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	return db.Read(ctx, func(on bun.IDB) error {
		return on.RunInTx(ctx, options, func(_ context.Context, tx bun.Tx) error { return do(Tx{tx, db.bun}) })
	})
}

// Native is Do on the driver's own connection, which receives arrays in binary form.
func (db *DB) Native(ctx context.Context, do func(*pgx.Conn) error) error {
	return db.Do(ctx, func() error {
		var err error
		for range 3 { // as database/sql does: the server may have closed a pooled connection
			if err = db.onConn(ctx, do); !pgconn.SafeToRetry(err) {
				return err
			}
		}
		return err
	})
}

// onConn runs do on one of the pool's connections.
func (db *DB) onConn(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := db.bun.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return conn.Raw(func(driver any) error {
		return do(driver.(*retirableConn).Conn()) //nolint:forcetypeassert // Open made the pool
	})
}
