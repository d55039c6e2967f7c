package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

func backlogCommand(out io.Writer) *cobra.Command {
	g := growth{partners: partners{bench: bench{out: out}}}
	cmd := g.command("backlog",
		"Measure whether a long backlog, or a long history in the same tables and Sites, slows a worker down", 5,
		g.run, g.close)
	cmd.Flags().IntVar(&g.short, "short", 10_000, "rows of the short backlog")
	cmd.Flags().IntVar(&g.long, "long", 1_000_000, "rows of the long backlog")
	cmd.Flags().IntVar(&g.history, "history", 10_000_000, "settled rows in the tables, for the second comparison")
	cmd.Flags().DurationVar(&g.measured, "measure", 5*time.Second,
		"duration of the measurement, after a warm-up of a fifth of it")
	return cmd
}

// growth measures one worker on a rail without latency, while a feeder keeps the backlog at a
// level. A short backlog thus lasts as long as a long one, and the submissions cost the same in
// both.
type growth struct {
	partners
	short, long, history int
	measured             time.Duration
}

func (g *growth) run(ctx context.Context) error {
	if err := g.open(ctx); err != nil {
		return err
	}
	if err := g.addPartners(ctx, benchSites); err != nil {
		return err
	}
	short := &series{Name: fmt.Sprintf("backlog of %d rows", g.short), Unit: "rows/s"}
	long := &series{Name: fmt.Sprintf("backlog of %d rows", g.long), Unit: "rows/s"}
	after := &series{Name: fmt.Sprintf("the short backlog after %d settled rows", g.history), Unit: "rows/s"}
	for range g.runs { // alternately, so that a drift of the machine affects both
		if err := errors.Join(g.measure(ctx, g.short, short), g.deleteBatches(ctx)); err != nil {
			return err
		}
		if err := errors.Join(g.measure(ctx, g.long, long), g.deleteBatches(ctx)); err != nil {
			return err
		}
	}
	if err := g.writeHistory(ctx, g.history); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	for range g.runs {
		if err := errors.Join(g.measure(ctx, g.short, after), g.awaitDrained(ctx)); err != nil {
			return err
		}
	}
	return g.report([]*series{short, long, after}, []ratio{
		{Name: "long backlog ÷ short", Value: long.median() / short.median(), Target: 0.9},
		{Name: "with history ÷ without", Value: after.median() / short.median(), Target: 0.9},
	})
}

// measure adds the rate at which a worker settles rows while the backlog stays at the level.
func (g *growth) measure(ctx context.Context, level int, to *series) error {
	load, err := g.feed(ctx, level)
	if err != nil {
		return err
	}
	if err := g.checkpoint(ctx); err != nil {
		return errors.Join(err, load.end())
	}
	w, err := g.startWorker(ctx, debitWorker(instantRail{}))
	if err != nil {
		return errors.Join(err, load.end())
	}
	rate, err := g.settledRate(ctx, g.measured/5, g.measured)
	to.add(rate)
	return errors.Join(err, load.end(), w.end())
}

// awaitDrained lets a worker settle the remaining rows.
func (g *growth) awaitDrained(ctx context.Context) error {
	w, err := g.startWorker(ctx, debitWorker(instantRail{}))
	if err != nil {
		return err
	}
	return errors.Join(g.awaitSettled(ctx), w.end())
}

// These statements write the rows that settled batches leave behind, as if they had been submitted
// and settled two days ago. $1 is the Site, $2 and $3 are the numbers of the first and the last
// batch.
const (
	historyBatches = `
INSERT INTO batches (site_id, id, organisation_id, batch_reference, state, row_count, settled_count, succeeded_count,
                     total_amount, succeeded_amount, currency, submitted_at, settle_by, settled_at, fingerprint,
                     trace_id, generation, epoch)
SELECT s.id, (lpad(to_hex(1700000000000 + n), 12, '0') || '70008' || substr(md5(n::text), 1, 15))::uuid,
       s.organisation_id, 'history ' || n, 'settled', 1000, 1000, 1000, 100000, 100000, s.currency, t.ms,
       t.ms + 86400000, t.ms + 1000, sha256(n::text::bytea), md5(n::text), 1, 1
FROM sites s, generate_series($2::int, $3::int) AS n, LATERAL (SELECT svc_now() - 2 * 86400000 AS ms) t WHERE s.id = $1`
	historyRows = `
INSERT INTO batch_rows (site_id, batch_id, row_index, attempts, link_id, amount, settled_at, state, outcome,
	customer_reference, row_reference)
SELECT b.site_id, b.id, i, 1, b.id, 100, b.settled_at, 'settled', 'succeeded', (i % 100)::text, i::text
FROM batches b, generate_series(0, 999) AS i
WHERE b.site_id = $1 AND b.batch_reference IN (SELECT 'history ' || n FROM generate_series($2::int, $3::int) AS n)
ORDER BY 2, 3`
	historyLedger = `
INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference, row_reference,
	customer_reference)
SELECT 'r1_' || b.id || i, b.site_id, b.settled_at, 100, b.currency, b.batch_reference, i::text, (i % 100)::text
FROM batches b, generate_series(0, 999) AS i
WHERE b.site_id = $1 AND b.batch_reference IN (SELECT 'history ' || n FROM generate_series($2::int, $3::int) AS n)
ORDER BY 1`
)

// writeHistory writes settled batches of 1000 rows, spread over the Sites.
func (g *growth) writeHistory(ctx context.Context, rows int) error {
	const step = 100 // batches per statement
	for n := 0; n < rows/models.MaxBatchRows; n += step {
		last := min(n+step, rows/models.MaxBatchRows) - 1
		site := g.sites[n/step%len(g.sites)]
		for _, query := range []string{historyBatches, historyRows, historyLedger} {
			if err := g.exec(ctx, query, site.ID, n, last); err != nil {
				return err
			}
		}
	}
	return g.execWithoutTimeout(ctx, "VACUUM ANALYZE")
}
