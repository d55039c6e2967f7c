package models

import (
	"context"
	_ "embed" // statements

	"partnerbilling/models/postgres"
)

// MostCounted is the number at which the counts for operators stop, so that they cost little.
const MostCounted = 1000

// Figures are the key figures about the whole state of the service, for operators.
type Figures struct {
	// OldestOpenBatch is the age of the open batch with the earliest deadline; 0 if none is open.
	OldestOpenBatch Age
	// ParkedEndpoints is the number of webhook endpoints with parked events, at most MostCounted.
	ParkedEndpoints int
	// ParkedEvents is the number of webhook events that wait for their endpoint, at most
	// MostCounted.
	ParkedEvents int
	// OpenAlerts is the number of open alerts of each kind in AlertKinds, at most MostCounted each.
	// A kind without open alerts has the entry 0.
	OpenAlerts map[string]int
}

var (
	//go:embed figures.sql
	figuresText string
	figuresSQL  = postgres.SQL(figuresText)
)

// Figures reads the key figures. Its cost does not grow with backlogs, since each count stops at
// MostCounted.
func (s *Store) Figures(ctx context.Context) (Figures, error) {
	var row struct {
		OldestOpenBatch               Age
		ParkedEndpoints, ParkedEvents int
		OpenAlerts                    []int `bun:",array"` // in the order of AlertKinds
	}
	err := s.pg.Get(ctx, figuresSQL, postgres.Args{
		"most": MostCounted, "settle_within": SettleWithin.Milliseconds(), "kinds": AlertKinds,
	}, &row)
	if err != nil {
		return Figures{}, wrap("figures", err)
	}
	f := Figures{
		OldestOpenBatch: row.OldestOpenBatch, ParkedEndpoints: row.ParkedEndpoints, ParkedEvents: row.ParkedEvents,
		OpenAlerts: make(map[string]int, len(AlertKinds)),
	}
	for i, kind := range AlertKinds {
		f.OpenAlerts[kind] = row.OpenAlerts[i]
	}
	return f, nil
}
