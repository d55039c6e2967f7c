package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// haOpenWork counts the work that is not settled.
type haOpenWork struct{ Batches, Rows, Payments, Intents int }

func (f *haFleet) openWork(ctx context.Context) (haOpenWork, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // a scan of all rows
	defer cancel()
	var open haOpenWork
	err := f.store.DB().NewRaw(`
SELECT (SELECT count(*) FROM batches WHERE state <> 'settled') AS batches,
       (SELECT count(*) FROM batch_rows WHERE state <> 'settled' OR outcome = 'unconfirmed'
           AND corrected_outcome IS NULL) AS rows,
       (SELECT count(*) FROM payment_intents WHERE state = 'pending') AS payments,
       (SELECT count(*) FROM payment_intents WHERE state = 'created') AS intents`).Scan(ctx, &open)
	return open, err
}

const (
	// intentStep moves the clock past the expiry of every payment intent.
	intentStep = 16 * time.Minute
	// batchStep moves the clock past the deadline of every batch.
	batchStep = 25 * time.Hour
)

// settle waits until all work is settled. It waits with the clock as it is, then past the expiry of
// payment intents and, if work is still open, past the deadline of batches. It returns the work
// that is open after that as a breach.
func (h *ha) settle(ctx context.Context) ([]string, error) {
	timeout := h.settleWithin / 3
	open, err := h.awaitOpen(ctx, timeout, func(o haOpenWork) bool {
		return o.Rows == 0 && o.Batches == 0 &&
			o.Payments == 0
	})
	if err != nil {
		return nil, err
	}
	for _, step := range []time.Duration{intentStep, batchStep} {
		if step == batchStep && open == (haOpenWork{}) {
			break
		}
		if _, err := h.fleet.store.AdvanceClock(ctx, step); err != nil {
			return nil, err
		}
		if open, err = h.awaitOpen(ctx, timeout, func(o haOpenWork) bool { return o == haOpenWork{} }); err != nil {
			return nil, err
		}
	}
	if open == (haOpenWork{}) {
		return nil, nil
	}
	tasks, err := h.fleet.openTasks(ctx)
	return append([]string{fmt.Sprintf("open work after all deadlines: %+v", open)}, tasks...), err
}

// openTasks describes some of the open rows, each with its task.
func (f *haFleet) openTasks(ctx context.Context) (lines []string, err error) {
	err = f.store.DB().NewRaw(`
SELECT 'row ' || (to_jsonb(r) - 'site_id' - 'trace_id')::text || ', task ' || coalesce(to_jsonb(o)::text, 'none')
FROM batch_rows r LEFT JOIN outbox o ON o.subject_id = r.batch_id
WHERE r.state <> 'settled' OR r.outcome = 'unconfirmed' AND r.corrected_outcome IS NULL LIMIT 10`).Scan(ctx, &lines)
	return lines, err
}

// awaitOpen waits until the open work meets the condition or the time-out passes, and returns it.
func (h *ha) awaitOpen(
	ctx context.Context, timeout time.Duration, done func(haOpenWork) bool,
) (open haOpenWork, err error) {
	for began, printed := time.Now(), time.Now(); ; {
		if open, err = h.fleet.openWork(ctx); err != nil || done(open) || time.Since(began) > timeout {
			return open, err
		}
		if time.Since(printed) > progressInterval {
			printed = time.Now()
			h.printf("open: %+v", open)
		}
		if !sleep(ctx, 250*time.Millisecond) {
			return open, ctx.Err()
		}
	}
}

// audit checks the result of the run: by the partners' records, by the gateway's list, and by the
// service's own audit.
func (h *ha) audit(ctx context.Context, report *haReport) error {
	f := h.fleet
	broken, err := f.compareBooks(ctx)
	if err != nil {
		return err
	}
	report.Broken = append(report.Broken, broken...)
	report.Partners = f.counts()
	var unexpected []string
	report.Unavailable, unexpected = f.observed.seen()
	report.Broken = append(report.Broken, unexpected...)
	if f.receiver != nil {
		broken, err := f.receiver.check(ctx, f.store)
		if err != nil {
			return err
		}
		report.Broken = append(report.Broken, broken...)
		report.Webhooks, report.Repeated = f.receiver.repeated()
		report.Calm, report.Outage = f.observed.latencies()
		if report.Unavailable > 0 {
			report.Broken = append(report.Broken, "Redis alone made the service refuse requests with 503")
		}
	}
	report.Broken = append(report.Broken, h.checkPromotions(report)...)
	report.Broken = append(report.Broken, stopMembers(f.members)...)
	report.Broken = append(report.Broken, f.audit(ctx)...)
	return f.store.DB().NewRaw(`SELECT outcome::text, coalesce(corrected_outcome::text, '') AS corrected,
		count(*) AS rows
FROM batch_rows GROUP BY 1, 2 ORDER BY 3 DESC`).Scan(ctx, &report.Outcomes)
}

// compareBooks reads everything through the API once more, and compares it with the gateway's list
// and the ledger. It returns all breaches.
func (f *haFleet) compareBooks(ctx context.Context) (broken []string, err error) {
	group, groupCtx := errgroup.WithContext(ctx)
	for _, p := range f.partners {
		group.Go(func() error { return p.audit(groupCtx) })
		for _, t := range p.tills {
			group.Go(func() error { return t.audit(groupCtx) })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	books, err := f.readBooks(ctx)
	if err != nil {
		return nil, err
	}
	books.compare(f.partners)
	for _, p := range f.partners {
		broken = append(broken, p.broken...)
	}
	return append(broken, books.broken.lines()...), nil
}

// checkPromotions checks the times of the promotions. It also requires lost batches if there were
// enough losses: without them the run would prove nothing.
func (h *ha) checkPromotions(report *haReport) (broken []string) {
	limit := maxAnswerDelay
	if h.Redis != "" {
		limit = maxRedisRecovery
	}
	if h.deployment != "" {
		limit *= 3 // its proxies notice a failover only at their next health check
	}
	for i, p := range h.promotions {
		if p.Answered > limit {
			broken = append(broken, fmt.Sprintf(
				"promotion %d: the first successful answer came %s after the readiness of the new primary",
				i+1, p.Answered))
		}
	}
	const enoughLosses = 5 // at least one of so many loses a batch that was just acknowledged
	if h.Redis == "" && h.Loss >= enoughLosses && report.Partners.Vanished.Batches == 0 {
		broken = append(broken, fmt.Sprintf(
			"no batch vanished in %d promotions with loss: the run proves nothing", h.Loss))
	}
	return broken
}

// audit runs `svc admin audit`, and returns its output if it fails.
func (f *haFleet) audit(ctx context.Context) []string { return admin(ctx, f.svc, f.env, "audit") }
