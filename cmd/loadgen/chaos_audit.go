package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/uptrace/bun"
	"golang.org/x/sync/errgroup"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/reconcile"
	"partnerbilling/models"
)

// chaosReport is the result of a chaos run. Took is the time until everything was settled, in
// nanoseconds in JSON. Broken describes the breaches of the service's promises, one line each. Logs
// is the directory with the logs of the processes, if there are breaches.
type chaosReport struct {
	chaosPlan
	Took     time.Duration             `json:"took"`
	ByKind   map[faultKind]faultCounts `json:"faultsByKind"`
	Partners partnerCounts             `json:"partners"`
	Outcomes []outcomeCount            `json:"outcomes"`
	Broken   []string                  `json:"broken"`
	Logs     string                    `json:"logs,omitempty"`
}

// faultCounts counts the injected faults of one kind, in total and by target.
type faultCounts struct {
	All      int            `json:"all"`
	ByTarget map[string]int `json:"byTarget"`
}

// settle waits until no work is open. If that takes too long, it returns the open work as a breach.
func (c *chaos) settle(ctx context.Context) (broken []string, err error) {
	// A restart removes the faults of the rail, even one whose request was stuck in a paused rail.
	if err := c.fleet.members["rail"].kill(ctx, 0); err != nil {
		return nil, err
	}
	open, err := awaitWork(ctx, c.fleet.store, c.settleWithin, openWork.isNone, c.printf)
	if err != nil || open.isNone() {
		return nil, err
	}
	return []string{fmt.Sprintf("open work %s after the last fault: %+v", c.settleWithin, open)}, nil
}

// chaosChecks lists queries that must return nothing, in addition to the service's own audit. One
// of them checks that the rail's list of debits has exactly the rows that succeeded.
var chaosChecks = []struct{ breach, query string }{
	{"rows are not settled, or unconfirmed", `
SELECT batch_id || ':' || row_index || ' ' || state || ' ' || coalesce(outcome::text, '') FROM batch_rows
WHERE ` + openRow},
	{"the rail's list is not the succeeded rows", `
SELECT coalesce(r.key, '(no row)') || ' ' || coalesce(r.amount, 0) || ', on the rail ' ||
       coalesce(d.key, '(nothing)') || ' ' || coalesce(d.amount, 0)
FROM (SELECT key, amount, agreement_id FROM sandbox_debits WHERE status = 'succeeded') d
FULL JOIN (SELECT e.rail_key AS key, w.amount, 'lnk_' || w.link_id AS agreement_id  -- see partners.go
           FROM batch_rows w JOIN batches b ON b.site_id = w.site_id AND b.id = w.batch_id
           LEFT JOIN ledger_entries e ON e.site_id = w.site_id AND e.batch_reference = b.batch_reference
               AND e.row_reference = w.row_reference
           WHERE coalesce(w.corrected_outcome, w.outcome) = 'succeeded') r ON r.key = d.key
WHERE (r.key, r.amount, r.agreement_id) IS DISTINCT FROM (d.key, d.amount, d.agreement_id)`},
	{"the rail has undecided debits", `SELECT key FROM sandbox_debits WHERE status = 'undecided'`},
}

// audit checks the result of the run against the partners' records, by the books, and by the
// service's own audit. It completes the report. On the way it stops the processes.
func (c *chaos) audit(ctx context.Context, report *chaosReport) error {
	report.ByKind = c.countFaults()
	if n := len(c.performed); n+c.skipped != len(c.schedule) {
		report.Broken = append(report.Broken, fmt.Sprintf("only %d of %d faults were injected", n, len(c.schedule)))
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, p := range c.fleet.partners {
		group.Go(func() error { return p.audit(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, p := range c.fleet.partners {
		report.Broken = append(report.Broken, p.broken...)
	}
	report.Partners = c.fleet.progress()
	report.Broken = append(report.Broken, stopMembers(c.fleet.members)...)
	broken, err := c.fleet.checkBooks(ctx)
	if err != nil {
		return err
	}
	report.Broken = append(report.Broken, broken...)
	report.Broken = append(report.Broken, c.fleet.audit(ctx)...)
	report.Outcomes, err = countOutcomes(ctx, c.fleet.store)
	return err
}

// stopMembers asks all processes to end. It returns a breach for each process that did not end
// gracefully, and for each line of output that reports a bug, such as a panic.
func stopMembers(members map[string]*member) []string {
	var broken []string
	for name, m := range members {
		if err := m.stop(time.Minute); err != nil {
			broken = append(broken, err.Error())
		}
		_, fatal := m.output.read()
		for _, line := range fatal {
			broken = append(broken, name+": "+line)
		}
	}
	return broken
}

// checkBooks runs chaosChecks and compareLedger, and returns the breaches. No work may be open.
func (c *chaosFleet) checkBooks(ctx context.Context) ([]string, error) {
	if _, err := c.store.SandboxDebits(ctx, "", 1); err != nil { // decides the undecided debits
		return nil, err
	}
	var broken []string
	for _, check := range chaosChecks {
		var found []string
		if err := c.query(ctx, &found, check.query+" LIMIT 20"); err != nil {
			return nil, err
		}
		for _, subject := range found {
			broken = append(broken, check.breach+": "+subject)
		}
	}
	compared, err := compareLedger(ctx, c.store, rail.NewSandbox(c.store))
	return append(broken, compared...), err
}

// compareLedger compares the ledger of the last models.RailMemory with the rail's list of debits,
// and returns the differences. It moves the service's clock forward by an hour, so that no debit or
// entry is too recent to be compared. No debit may be in flight.
func compareLedger(ctx context.Context, store *models.Store, r rail.Rail) (broken []string, err error) {
	if _, err := store.AdvanceClock(ctx, time.Hour); err != nil {
		return nil, err
	}
	state, err := store.Reconciliation(ctx)
	if err != nil {
		return nil, err
	}
	comparer := &reconcile.Comparer{Store: store, Rail: r, RailConcurrency: 512} // nothing else uses r
	from := state.Now.Add(-models.RailMemory)
	err = comparer.Compare(ctx, from, state.Now, func(step reconcile.Step) error {
		for _, d := range step.Differences {
			broken = append(broken, fmt.Sprintf("reconciliation: %s: %s: %s", d.Kind, d.RailKey, d.Detail))
		}
		return nil
	})
	return broken, err
}

// query runs a query over whole tables, without a time-out, and scans its rows into the slice.
func (c *chaosFleet) query(ctx context.Context, into any, query string) error {
	return c.store.DB().RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.ExecContext(ctx,
			"SET LOCAL statement_timeout = 0; SET LOCAL enable_nestloop = off"); err != nil {
			return err
		}
		return tx.NewRaw(query).Scan(ctx, into)
	})
}

// audit runs `svc admin audit`. If that fails, it returns the lines of the output as breaches. The
// fleet debits through HTTP, so the audit compares nothing with the sandbox rail's tables: the
// run's own checks do.
func (c *chaosFleet) audit(ctx context.Context) []string {
	servers := []string{"SVC_DATABASE_URL=" + c.database.DatabaseURL, "SVC_REDIS_URL=" + c.cache.RedisURL}
	return admin(ctx, c.svc, slices.Concat(c.env, servers), "audit")
}

func (c *chaos) countFaults() map[faultKind]faultCounts {
	counts := map[faultKind]faultCounts{}
	for _, f := range c.performed {
		count := counts[f.Kind]
		if count.ByTarget == nil {
			count.ByTarget = map[string]int{}
		}
		count.All++
		count.ByTarget[f.Target]++
		counts[f.Kind] = count
	}
	return counts
}

// print prints the report. If the run has breaches, it also prints how to repeat the run.
func (c *chaos) print(report chaosReport) error {
	if c.json {
		return json.NewEncoder(c.out).Encode(report)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nfault\ttimes\ttargets\n")
	for _, spec := range faultSpecs {
		if count, ok := report.ByKind[spec.kind]; ok {
			fmt.Fprintf(w, "%s\t%d\t%s\n", spec.kind, count.All, count.targets())
		}
	}
	fmt.Fprintf(w, "\noutcome\trows\n")
	for _, o := range report.Outcomes {
		name := o.Outcome
		if o.Corrected != "" {
			name += ", corrected to " + o.Corrected
		}
		fmt.Fprintf(w, "%s\t%d\n", name, o.Rows)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	p := report.Partners
	fmt.Fprintf(c.out, "\nseed %d: %d faults; %d rows in %d batches, settled within %s (%.0f rows/s);\n",
		report.Seed, len(c.performed), p.Rows, p.Batches,
		report.Took.Round(100*time.Millisecond), float64(p.Rows)/report.Took.Seconds())
	fmt.Fprintf(c.out, "%d resubmissions, %d conflicts, %d cancellations, %d reads\n",
		p.Resubmissions, p.Conflicts, p.Cancellations, p.Reads)
	if len(report.Broken) == 0 {
		fmt.Fprintln(c.out, "0 lost, 0 debited twice, every batch settled, the audit is clean")
		return nil
	}
	return c.printBroken(report)
}

// printBroken prints the command that repeats the run, its schedule, and the breaches.
func (c *chaos) printBroken(report chaosReport) error {
	fmt.Fprintf(c.out, "\nRepeat this run with `loadgen chaos --seed %d --faults %d --every %s --rows %d",
		report.Seed, report.Faults, report.Every, report.Rows)
	if len(report.Kinds) > 0 {
		fmt.Fprintf(c.out, " --kinds %s", strings.Join(report.Kinds, ","))
	}
	fmt.Fprintln(c.out, "`. The schedule:")
	if err := c.printSchedule(c.out); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "\nThe logs of the processes are in %s. Broken:\n", report.Logs)
	for _, line := range report.Broken {
		fmt.Fprintln(c.out, line)
	}
	return nil
}

// targets lists the targets with their counts, the most frequent first.
func (f faultCounts) targets() string {
	names := make([]string, 0, len(f.ByTarget))
	for name := range f.ByTarget {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(f.ByTarget[b]-f.ByTarget[a], strings.Compare(a, b)) })
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %d", name, f.ByTarget[name])
	}
	return b.String()
}
