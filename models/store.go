package models

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

// Config configures a Store's connections to Postgres.
type Config struct {
	// DSN is a postgres:// URL.
	DSN string
	// MaxConns bounds the pool; default 16.
	MaxConns int
	// MaxQueued bounds how many calls may wait for a connection. Further calls fail with
	// ErrUnavailable at once. 0: no bound.
	MaxQueued int
	// StatementTimeout ends a statement on the server; default 10 s. If a server does not answer
	// within a further answerGrace, the statement fails with ErrUnavailable, and its connection is
	// dropped.
	StatementTimeout time.Duration
	// MaxConnAge is the age at which a connection is replaced, plus up to a fifth at random, so
	// that a fleet's reconnections spread; default 30 minutes.
	MaxConnAge time.Duration
	// ApplicationName is the name in pg_stat_activity.
	ApplicationName string
	// Quotas bound what one organisation may store; default no bounds.
	Quotas Quotas
	// Now measures the age of quota readings; default time.Now.
	Now func() time.Time
}

// answerGrace is how long after Config.StatementTimeout a live server's answer may arrive.
const answerGrace = 2 * time.Second

// Store is the service's state in Postgres. Each exported method is one transaction or one
// statement and checks the rows that it changes. A Store is safe for concurrent use.
type Store struct {
	db     *bun.DB
	conns  *connector
	limit  int64 // maximum number of concurrent calls; 0: no bound
	inside atomic.Int64

	intents    Coalescer[*insertedIntent, bool]
	quotas     Quotas
	gauges     quotaGauges
	splitAbove int // links of one state in a part of the counts above which it becomes a node
}

// Open prepares a pool of connections without connecting. A DSN may name several hosts: see
// connector.
func Open(_ context.Context, cfg Config) (*Store, error) {
	conf, err := pgx.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, fmt.Errorf("models: database URL: %w", redactDSN(err))
	}
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = 16
	}
	if cfg.StatementTimeout <= 0 {
		cfg.StatementTimeout = 10 * time.Second
	}
	if cfg.MaxConnAge <= 0 {
		cfg.MaxConnAge = 30 * time.Minute
	}
	conf.RuntimeParams["application_name"] = cfg.ApplicationName
	conf.RuntimeParams["statement_timeout"] = fmt.Sprint(cfg.StatementTimeout.Milliseconds())
	// Bounds how long a process that stops in a transaction keeps its locks.
	conf.RuntimeParams["idle_in_transaction_session_timeout"] = "10000"
	conf.RuntimeParams["jit"] = "off" // compiling short statements does not pay
	// Postgres keeps a plan until the table's statistics change. A plan made while the outbox was
	// almost empty would scan a backlog from end to end.
	conf.RuntimeParams["enable_seqscan"] = "off"
	// By default Postgres plans statements with array parameters anew each time, which takes longer
	// than running them. Every statement here is written for one plan.
	conf.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	conns := newConnector(conf, cfg.StatementTimeout+answerGrace)
	pool := sql.OpenDB(conns)
	pool.SetMaxOpenConns(cfg.MaxConns)
	pool.SetMaxIdleConns(cfg.MaxConns)
	pool.SetConnMaxIdleTime(connMaxIdle)
	pool.SetConnMaxLifetime(cfg.MaxConnAge + rand.N(cfg.MaxConnAge/5)) //nolint:gosec // spreads load, keeps no secret
	s := &Store{db: bun.NewDB(pool, pgdialect.New()), conns: conns, splitAbove: splitLinksAbove}
	s.intents.Call = s.insertIntents
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s.quotas, s.gauges = cfg.Quotas, s.newQuotaGauges(cfg.Quotas, cfg.Now)
	if cfg.MaxQueued > 0 {
		s.limit = int64(cfg.MaxConns + cfg.MaxQueued)
	}
	return s, nil
}

// DB is the handle for migrations and test kits. Everything else uses the Store's methods.
func (s *Store) DB() *bun.DB { return s.db }

// Close closes the pool.
func (s *Store) Close() error { return s.db.Close() }

// Ping checks that Postgres accepts writes. ErrUnavailable: it does not answer, is a standby or
// read-only, or, after RequireDurability, would not flush commits.
func (s *Store) Ping(ctx context.Context) error {
	return s.native(ctx, func(conn *pgx.Conn) error { return s.conns.recheck(ctx, conn.PgConn()) })
}

// Stats returns the pool's statistics.
func (s *Store) Stats() sql.DBStats { return s.db.Stats() }

// inTx runs do in one transaction. After a deadlock or a serialization failure, which roll
// everything back, it runs do again, at most three times.
func (s *Store) inTx(ctx context.Context, do func(tx bun.Tx) error) error {
	return s.call(ctx, func() error {
		var err error
		for range 4 {
			if err = s.db.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return do(tx) }); !isRetryable(err) {
				return err
			}
		}
		return err
	})
}

// statement runs do, which sends one statement, with the same retries as inTx.
func (s *Store) statement(ctx context.Context, do func() error) error {
	return s.call(ctx, func() error {
		var err error
		for range 4 {
			if err = do(); !isRetryable(err) {
				return err
			}
		}
		return err
	})
}

// native is statement on the driver's own connection, which sends arrays in binary form.
func (s *Store) native(ctx context.Context, do func(*pgx.Conn) error) error {
	return s.statement(ctx, func() error {
		var err error
		for range 3 { // as in database/sql: the server may have closed a pooled connection
			if err = s.onConn(ctx, do); !pgconn.SafeToRetry(err) {
				return err
			}
		}
		return err
	})
}

func (s *Store) onConn(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := s.db.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return conn.Raw(func(driver any) error {
		return do(driver.(*stdlib.Conn).Conn()) //nolint:forcetypeassert // Open made the pool
	})
}

// call bounds the number of concurrent calls and turns errors of an unavailable Postgres into
// ErrUnavailable.
func (s *Store) call(ctx context.Context, do func() error) error {
	if n := s.inside.Add(1); s.limit > 0 && n > s.limit {
		s.inside.Add(-1)
		return fmt.Errorf("%w: the queue for a connection is full", ErrUnavailable)
	}
	defer s.inside.Add(-1)
	if err := do(); err != nil {
		return classify(ctx, err)
	}
	return nil
}
