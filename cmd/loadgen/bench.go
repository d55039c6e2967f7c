package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"partnerbilling/deploy/local"
	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/queue"
)

// bench is what every measuring scenario works on: private, durable servers (fsync and synchronous_commit on), so that
// everything that is compared runs on the same ones.
type bench struct {
	out   io.Writer
	runs  int
	json  bool
	local *local.Servers
	store *models.Store
	redis *redis.Client
	log   *slog.Logger
}

// open starts the servers in a temporary folder.
func (b *bench) open(ctx context.Context) error {
	b.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	var err error
	if b.local, err = local.Temp(ctx, local.Options{}); err != nil {
		return err
	}
	if b.store, err = models.Open(ctx, models.Config{DSN: b.local.DatabaseURL, MaxConns: 32, ApplicationName: "loadgen"}); err != nil {
		return err
	}
	if _, err := migrations.Up(ctx, b.store.DB()); err != nil {
		return err
	}
	b.redis, err = queue.Connect(b.local.RedisURL)
	return err
}

func (b *bench) close() error {
	var errs []error
	if b.redis != nil {
		errs = append(errs, b.redis.Close())
	}
	if b.store != nil {
		errs = append(errs, b.store.Close())
	}
	if b.local != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		errs = append(errs, b.local.Stop(ctx))
	}
	return errors.Join(errs...)
}

// exec runs a statement of the scenario's own.
func (b *bench) exec(ctx context.Context, query string, args ...any) error {
	_, err := b.store.DB().DB.ExecContext(ctx, query, args...)
	return err
}

// series are the figures of one thing over several runs.
type series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
}

func (s *series) add(v float64) { s.Values = append(s.Values, v) }

func (s *series) sorted() []float64 { return slices.Sorted(slices.Values(s.Values)) }

// median is the middle of the values, the lower one of two.
func (s *series) median() float64 {
	if len(s.Values) == 0 {
		return 0
	}
	return s.sorted()[(len(s.Values)-1)/2]
}

// ratio compares the medians of two series.
type ratio struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Target float64 `json:"target"` // at least, if positive; at most, if negative
}

func (r ratio) met() bool {
	if r.Target < 0 {
		return r.Value <= -r.Target
	}
	return r.Value >= r.Target
}

// report prints the figures as a table or as JSON.
func (b *bench) report(all []*series, ratios []ratio) error {
	if b.json {
		return json.NewEncoder(b.out).Encode(map[string]any{"series": all, "ratios": ratios})
	}
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tmedian\tleast\tmost\truns\t")
	for _, s := range all {
		v := s.sorted()
		if len(v) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s\t%.4g %s\t%.4g\t%.4g\t%d\t\n", s.Name, s.median(), s.Unit, v[0], v[len(v)-1], len(v))
	}
	for _, r := range ratios {
		if math.IsNaN(r.Value) || math.IsInf(r.Value, 0) {
			continue // one of the two was not measured
		}
		bound, verdict := "at least", "met"
		if r.Target < 0 {
			bound = "at most"
		}
		if !r.met() {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%.2f\t%s %.2f\t%s\t\t\n", r.Name, r.Value, bound, max(r.Target, -r.Target), verdict)
	}
	return w.Flush()
}
