package models

import (
	"context"
	_ "embed" // statements

	"partnerbilling/models/postgres"
)

// MostCounted is the number at which Figures and Health stop counting.
const MostCounted = 1000

// Figures are an operator's key figures of the whole state.
type Figures struct {
	// OldestOpenBatch is the age of the open batch with the earliest deadline; 0 if none is open.
	OldestOpenBatch Age
	// ParkedEndpoints is the number of webhook endpoints with parked events, at most MostCounted.
	ParkedEndpoints int
	// ParkedEvents is the number of parked events, at most MostCounted.
	ParkedEvents int
	// OpenAlerts are the numbers of open alerts by kind, at most MostCounted each. Every kind has
	// an entry.
	OpenAlerts map[string]int
}

var (
	//go:embed figures.sql
	figuresText string
	figuresSQL  = postgres.SQL(figuresText)
)

// Figures reads the figures. Its cost does not grow with the numbers counted.
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
