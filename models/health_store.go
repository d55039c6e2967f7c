package models

import (
	"context"
	_ "embed" // statements
	"time"

	"partnerbilling/models/postgres"
)

// FailingEndpoint is the number of failures in a row from which a webhook endpoint counts as
// failing. The retry schedule reaches it after two minutes, with a single event.
const FailingEndpoint = 3

// Health is the health of the database server, and of webhook endpoints.
type Health struct {
	// FailingEndpoints is the number of enabled webhook endpoints whose last FailingEndpoint
	// attempts failed, at most MostCounted.
	FailingEndpoints int
	// OldestRecurring is the time since the oldest unfinished recurring task was due.
	OldestRecurring time.Duration
	// OldestTransaction is the age of the oldest open transaction of any client.
	OldestTransaction time.Duration
	// Standbys is the number of connected standbys.
	Standbys int
	// ReplicationLag is the number of bytes of WAL that the last standby has not replayed; negative
	// if the role may not see it.
	ReplicationLag int64
	// Wraparound is the used share of the transaction ids before wraparound.
	Wraparound float64
	// ArchiveFailing says that the last attempt to archive WAL failed.
	ArchiveFailing bool
}

var (
	//go:embed health.sql
	healthText string
	healthSQL  = postgres.SQL(healthText)
)

// Health reads the health. Its cost grows with the number of webhook endpoints and sessions only.
func (s *Store) Health(ctx context.Context) (Health, error) {
	var row struct {
		FailingEndpoints, Standbys    int
		OldestTransaction, Wraparound float64
		OldestRecurring               Millis
		ReplicationLag                int64
		ArchiveFailing                bool
	}
	err := s.pg.Get(ctx, healthSQL, postgres.Args{"most": MostCounted, "failures": FailingEndpoint}, &row)
	if err != nil {
		return Health{}, wrap("health", err)
	}
	return Health{
		FailingEndpoints: row.FailingEndpoints, Standbys: row.Standbys, ReplicationLag: row.ReplicationLag,
		OldestTransaction: time.Duration(row.OldestTransaction * float64(time.Second)), Wraparound: row.Wraparound,
		ArchiveFailing: row.ArchiveFailing, OldestRecurring: row.OldestRecurring.Sub(0),
	}, nil
}
