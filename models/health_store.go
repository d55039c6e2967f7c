package models

import (
	"context"
	_ "embed" // statements

	"partnerbilling/models/postgres"
)

// FailingThreshold is the number of consecutive failures from which a webhook endpoint counts as
// failing. The retries of a single event reach this number after two minutes.
const FailingThreshold = 3

// Health is the health of the database server, of webhook endpoints and of recurring work.
type Health struct {
	// FailingEndpoints is the number of enabled webhook endpoints whose last FailingThreshold
	// attempts failed, at most MostCounted.
	FailingEndpoints int
	// OldestRecurring is the time since the oldest unfinished task of recurring work became due; 0
	// if there is none. Seconds are normal; more means that no worker serves the queue.
	OldestRecurring Age
	// OldestTransaction is the age of the oldest database transaction that is open or prepared; 0
	// if there is none.
	OldestTransaction Age
	// Standbys is the number of connected standbys. If the role lacks the right to tell them from
	// base backups and archives of WAL, it is the number of all connected receivers of WAL.
	Standbys int
	// ReplicationLag is the number of bytes of WAL that the slowest standby has not replayed yet; 0
	// if there is none. It is −1 if the role lacks the right to see it.
	ReplicationLag int64
	// Wraparound is the part of the transaction ids before wraparound that is used, from 0 to 1.
	Wraparound float64
	// ArchiveFailing says that the latest attempt to archive WAL failed.
	ArchiveFailing bool
}

var (
	//go:embed health.sql
	healthText string
	healthSQL  = postgres.SQL(healthText)
)

// Health reads the health of the database server, of webhook endpoints and of recurring work. Its
// cost grows only with the number of webhook endpoints and of sessions.
func (s *Store) Health(ctx context.Context) (h Health, err error) {
	err = s.pg.Get(ctx, healthSQL, postgres.Args{"most": MostCounted, "failures": FailingThreshold}, &h)
	return h, wrap("health", err)
}
