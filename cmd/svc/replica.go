package main

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus/collectors"

	"partnerbilling/api"
	"partnerbilling/models"
	"partnerbilling/models/postgres"
)

// checkReplica calls refuse if a replica and a pooler are configured. The pooler might run the
// check of the replica's lag on one server, and the read after it on another.
func (c *Config) checkReplica(refuse func(variable, complaint string)) {
	if c.ReadURL != "" && c.pooled() {
		refuse("SVC_DATABASE_READ_URL", "needs a direct connection: it does not work with SVC_DATABASE_POOLER")
	}
}

// useReplica lets a store read from the replica, a standby of Postgres, if one is configured. The
// first call opens the pool of the replica and registers its metrics. All stores of the process
// share the pool. The replica may be down.
func (s *service) useReplica(store *models.Store) error {
	if s.cfg.ReadURL == "" {
		return nil
	}
	if s.replica == nil {
		replica, err := models.OpenReplica(postgres.Config{
			DSN: s.cfg.ReadURL, MaxConns: s.cfg.DatabaseConns, ApplicationName: "svc replica",
		})
		if err != nil {
			return fmt.Errorf("SVC_DATABASE_READ_URL: %w", err)
		}
		s.replica = replica
		s.closers = append(s.closers, replica.Close)
		s.metrics.MustRegister(collectors.NewDBStatsCollector(replica.DB().DB, "replica"))
		api.RegisterReplica(s.metrics, store, s.log)
	}
	store.UseReplica(s.replica)
	return nil
}
