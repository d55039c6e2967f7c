package models

import (
	"context"
	_ "embed" // statements

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
	OldestRecurring Age
	// OldestTransaction is the age of the oldest open or prepared database transaction.
	OldestTransaction Age
	// Standbys is the number of connected standbys.
	Standbys int
	// ReplicationLag is the number of bytes of WAL that the slowest standby has not replayed;
	// negative if the role may not see it.
	ReplicationLag int64
	// Wraparound is the used fraction, 0 to 1, of the transaction ids before wraparound.
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
func (s *Store) Health(ctx context.Context) (h Health, err error) {
	err = s.pg.Get(ctx, healthSQL, postgres.Args{"most": MostCounted, "failures": FailingEndpoint}, &h)
	return h, wrap("health", err)
}
