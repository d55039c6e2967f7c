package models

import (
	"context"
	"database/sql"
	"time"

	"github.com/uptrace/bun"

	"partnerbilling/models/coalesce"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// Store is the service's state in Postgres. Most exported methods are one database transaction or
// one statement, and check the rows that they change. A Store is safe for concurrent use.
type Store struct {
	pg *postgres.DB
	db *bun.DB // of pg

	intents   coalesce.Coalescer[*insertedIntent, bool] // merges concurrent insertions
	quotas    Quotas
	gauges    quotaGauges // of quotas
	retention Retention
	ring      *seal.Keyring // opens and seals every Party; nil: none

	maxRedelivery int // MaxRedelivery, except in tests
	splitAbove    int // splitLinksAbove, except in tests
}

// Open prepares a pool of connections to Postgres without connecting.
func Open(cfg postgres.Config) (*Store, error) {
	pg, err := postgres.Open(cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{
		pg: pg, db: pg.Bun(), splitAbove: splitLinksAbove, retention: DefaultRetention, maxRedelivery: MaxRedelivery,
	}
	s.intents.Call = s.insertIntents
	s.SetQuotas(Quotas{}, time.Now) //nolint:forbidigo // measures the age of readings only
	return s, nil
}

// SetQuotas bounds what one organisation may store. By default, nothing is bounded. now measures
// the age of quota readings. SetQuotas must precede every other call.
func (s *Store) SetQuotas(quotas Quotas, now func() time.Time) {
	s.quotas, s.gauges = quotas, s.newQuotaGauges(quotas, now)
}

// DB returns the handle for migrations and test kits. Everything else uses the Store's methods.
func (s *Store) DB() *bun.DB { return s.db }

// Close closes the pool.
func (s *Store) Close() error { return s.pg.Close() }

// Ping checks that Postgres accepts writes. ErrUnavailable: it does not answer, is a standby or
// read-only, or, after RequireDurability, would not flush commits.
func (s *Store) Ping(ctx context.Context) error { return s.pg.Ping(ctx) }

// RequireDurability makes sure that commits survive a crash; see [postgres.DB.RequireDurability].
func (s *Store) RequireDurability(ctx context.Context) error { return s.pg.RequireDurability(ctx) }

// CheckDurability checks as RequireDurability does, once, without the lasting effect.
func (s *Store) CheckDurability(ctx context.Context) error { return s.pg.CheckDurability(ctx) }

// CheckSettings checks that sessions behind a pooler have the service's settings; see
// [postgres.DB.CheckSettings].
func (s *Store) CheckSettings(ctx context.Context) error { return s.pg.CheckSettings(ctx) }

// Stats returns the pool's statistics.
func (s *Store) Stats() sql.DBStats { return s.pg.Stats() }
