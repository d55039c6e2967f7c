package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"partnerbilling/deploy/local"
)

// haOpen is what is not settled yet.
type haOpen struct{ Batches, Rows, Payments, Intents int }

func (f *haFleet) openWork(ctx context.Context) (haOpen, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var open haOpen
	err := f.store.DB().NewRaw(`
SELECT (SELECT count(*) FROM batches WHERE state <> 'settled') AS batches,
       (SELECT count(*) FROM batch_rows WHERE state <> 'settled' OR outcome = 'unconfirmed' AND corrected_outcome IS NULL) AS rows,
       (SELECT count(*) FROM payment_intents WHERE state = 'pending') AS payments,
       (SELECT count(*) FROM payment_intents WHERE state = 'created') AS intents`).Scan(ctx, &open)
	return open, err
}

const (
	// intentStep moves the clock past the end of every payment intent.
	intentStep = 16 * time.Minute
	// batchStep moves the clock past the deadline of every batch.
	batchStep = 25 * time.Hour
)

// settle waits until nothing is open any more. First all is left to itself, then the clock moves past the payment intents' end, and
// at last past the batches' deadline. It returns what is still open after that.
func (h *ha) settle(ctx context.Context) ([]string, error) {
	part := h.settleWithin / 3
	open, err := h.awaitOpen(ctx, part, func(o haOpen) bool { return o.Rows == 0 && o.Batches == 0 && o.Payments == 0 })
	if err != nil {
		return nil, err
	}
	for _, step := range []time.Duration{intentStep, batchStep} {
		if step == batchStep && open == (haOpen{}) {
			break
		}
		if _, err := h.fleet.store.AdvanceClock(ctx, step); err != nil {
			return nil, err
		}
		if open, err = h.awaitOpen(ctx, part, func(o haOpen) bool { return o == haOpen{} }); err != nil {
			return nil, err
		}
	}
	if open == (haOpen{}) {
		return nil, nil
	}
	tasks, err := h.fleet.openTasks(ctx)
	return append([]string{fmt.Sprintf("after all deadlines there are open: %+v", open)}, tasks...), err
}

// openTasks tells of some open rows, each with the task that is to settle it.
func (f *haFleet) openTasks(ctx context.Context) (told []string, err error) {
	err = f.store.DB().NewRaw(`
SELECT 'row ' || (to_jsonb(r) - 'site_id' - 'trace_id')::text || ', task ' || coalesce(to_jsonb(o)::text, 'none')
FROM batch_rows r LEFT JOIN outbox o ON o.subject_id = r.batch_id
WHERE r.state <> 'settled' OR r.outcome = 'unconfirmed' AND r.corrected_outcome IS NULL LIMIT 10`).Scan(ctx, &told)
	return told, err
}

// awaitOpen waits until no more is open than may be, at most for a time, and returns what is.
func (h *ha) awaitOpen(ctx context.Context, within time.Duration, done func(haOpen) bool) (open haOpen, err error) {
	for began, told := time.Now(), time.Now(); ; {
		if open, err = h.fleet.openWork(ctx); err != nil || done(open) || time.Since(began) > within {
			return open, err
		}
		if time.Since(told) > tellEvery {
			told = time.Now()
			h.say("open: %+v", open)
		}
		if !sleep(ctx, 250*time.Millisecond) {
			return open, ctx.Err()
		}
	}
}

// judge holds what the run has left against the partners' memories and the gateway's own list.
func (h *ha) judge(ctx context.Context, report *haReport) error {
	f := h.fleet
	group, groupCtx := errgroup.WithContext(ctx)
	for _, p := range f.partners {
		group.Go(func() error { return p.audit(groupCtx) })
		for _, t := range p.tills {
			group.Go(func() error { return t.audit(groupCtx) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	judged, err := f.readBooks(ctx)
	if err != nil {
		return err
	}
	judged.judge(f.partners)
	for _, p := range f.partners {
		report.Broken = append(report.Broken, p.broken...)
	}
	report.Broken = append(report.Broken, judged.broken.lines()...)
	report.Partners = f.counted()
	var odd []string
	report.Unavailable, odd = f.observed.seen()
	report.Broken = append(report.Broken, odd...)
	report.Broken = append(report.Broken, h.checkPromotions(report)...)
	report.Broken = append(report.Broken, stopMembers(f.members)...)
	report.Broken = append(report.Broken, f.audit(ctx)...)
	return f.store.DB().NewRaw(`SELECT outcome::text, coalesce(corrected_outcome::text, '') AS corrected, count(*) AS rows
FROM batch_rows GROUP BY 1, 2 ORDER BY 3 DESC`).Scan(ctx, &report.Outcomes)
}

// checkPromotions holds the promotions against what they should have been like: a run in which nothing was lost proves nothing of
// losses.
func (h *ha) checkPromotions(report *haReport) (broken []string) {
	for i, p := range h.promotions {
		if p.Answered > answerBound {
			broken = append(broken, fmt.Sprintf("after promotion %d the first good answer came %s after the new primary's readiness", i+1, p.Answered))
		}
	}
	const enough = 5 // losses, of which one at least meets a batch that was just acknowledged
	if h.Loss >= enough && report.Partners.Vanished.Batches == 0 {
		broken = append(broken, fmt.Sprintf("no batch vanished in %d promotions with loss: the run shows nothing", h.Loss))
	}
	return broken
}

// audit runs the service's own.
func (f *haFleet) audit(ctx context.Context) []string {
	cmd := exec.CommandContext(ctx, f.svc, "admin", "audit")
	cmd.Env = local.Environ(f.env...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	return append(strings.Split(strings.TrimSpace(string(out)), "\n"), "svc admin audit: "+err.Error())
}
