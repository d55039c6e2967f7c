package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"partnerbilling/models"
)

const (
	// intentStep moves the clock past the expiry of every payment intent.
	intentStep = models.DefaultIntentLife + time.Minute
	// batchStep moves the clock past the deadline of every batch.
	batchStep = models.SettleWithin + time.Hour
)

// settle waits until no work is open, in up to three steps of a third of settleWithin each. It
// first waits for everything but unpaid payment intents. Then it moves the clock past the expiry of
// payment intents, and waits. If work is still open, it moves the clock past the deadline of
// batches, and waits once more. Work that is open after that is returned as a breach.
func (h *ha) settle(ctx context.Context) ([]string, error) {
	timeout := h.settleWithin / 3
	open, err := h.awaitWork(ctx, timeout, func(o openWork) bool {
		o.Intents = 0
		return o.isNone()
	})
	if err != nil {
		return nil, err
	}
	for _, step := range []time.Duration{intentStep, batchStep} {
		if step == batchStep && open.isNone() {
			break
		}
		if _, err := h.fleet.store.AdvanceClock(ctx, step); err != nil {
			return nil, err
		}
		if open, err = h.awaitWork(ctx, timeout, openWork.isNone); err != nil {
			return nil, err
		}
	}
	if open.isNone() {
		return nil, nil
	}
	tasks, err := h.fleet.openTasks(ctx)
	return append([]string{fmt.Sprintf("open work after all deadlines: %+v", open)}, tasks...), err
}

// openTasks describes open rows in up to 10 lines of text. Each line has a row and a task of the
// row's batch, so that a row can have several lines.
func (f *haFleet) openTasks(ctx context.Context) (lines []string, err error) {
	err = f.store.DB().NewRaw(`
SELECT 'row ' || (to_jsonb(r) - 'site_id' - 'trace_id')::text || ', task ' || coalesce(to_jsonb(o)::text, 'none')
FROM batch_rows r LEFT JOIN outbox o ON o.subject_id = r.batch_id
WHERE `+openRow+` LIMIT 10`).Scan(ctx, &lines)
	return lines, err
}

// awaitWork is the function awaitWork for the database of the fleet.
func (h *ha) awaitWork(ctx context.Context, timeout time.Duration, done func(openWork) bool) (openWork, error) {
	return awaitWork(ctx, h.fleet.store, timeout, done, h.printf)
}

// audit checks the result of the run by the partners' records, by the gateway's list of debits, and
// by the service's own audit. It completes the report. On the way it stops the processes.
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
	report.Outcomes, err = countOutcomes(ctx, f.store)
	return err
}

// compareBooks reads everything through the API once more, and compares it with the gateway's list
// of debits and with the ledger. It returns all breaches, including those that partners have
// recorded during the run.
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

// checkPromotions checks that the service answered soon enough after each promotion. If PostgreSQL
// had enough promotions with loss, it also requires lost batches: without any, the run proves
// nothing. It does not check that a failover of Redis lost tasks.
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
	const enoughLosses = 5 // of so many, at least one loses a batch that was just acknowledged
	if h.Redis == "" && h.Loss >= enoughLosses && report.Partners.Vanished.Batches == 0 {
		broken = append(broken, fmt.Sprintf(
			"no batch vanished in %d promotions with loss: the run proves nothing", h.Loss))
	}
	return broken
}

// audit runs `svc admin audit`. If that fails, it returns the lines of the output as breaches.
func (f *haFleet) audit(ctx context.Context) []string { return admin(ctx, f.svc, f.env, "audit") }
