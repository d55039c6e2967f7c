package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// ha is a run of failovers: again and again, the primary PostgreSQL or a master of Redis is killed
// and its standby promoted. Partners work meanwhile. In the end, everything that exists must be
// settled as on the gateway.
type ha struct {
	out          io.Writer
	json         bool
	svc          string        // path of the svc binary
	settleWithin time.Duration // time for everything to settle after the last promotion
	deployment   string        // data folder of deploy/ha/up; "" for a pair of the run's own
	haPlan

	random *rand.Rand
	fleet  *haFleet

	mu         sync.Mutex
	promotions []promotion
}

// haPlan holds the parameters that determine a run. Loss is the number of promotions of a lagging
// standby, which lose acknowledged commits. With Proxy, processes reach the primary through a proxy
// instead of a URL with both addresses. Redis is the kind of Redis deployment whose masters are
// killed; if it is empty, the primary PostgreSQL is killed.
type haPlan struct {
	Seed       uint64 `json:"seed"`
	Promotions int    `json:"promotions"`
	Loss       int    `json:"loss"`
	Rows       int    `json:"rows"`     // rows that all partners submit
	Payments   int    `json:"payments"` // payment intents that all partners create
	Proxy      bool   `json:"proxy,omitempty"`
	Redis      string `json:"redis,omitempty"`
}

// check returns an error if the parameters are invalid.
func (p *haPlan) check() error {
	if p.Promotions < 1 || p.Loss < 0 || p.Loss > p.Promotions {
		return errors.New("--promotions must be at least 1, and --loss at most as many")
	}
	if p.Redis != "" && p.Redis != redisSentinel && p.Redis != redisCluster {
		return errors.New("--redis must be sentinel or cluster")
	}
	return nil
}

func (h *ha) run(ctx context.Context) error {
	err := h.check()
	if err == nil && h.deployment != "" && (h.Loss > 0 || h.Proxy || h.Redis != "") {
		err = errors.New("--deployment goes with --loss 0 and without --proxy and --redis")
	}
	if err != nil {
		return err
	}
	if h.svc, err = (&bench{svc: h.svc}).binary(); err != nil {
		return err
	}
	h.random = rand.New(rand.NewPCG(h.Seed, 0)) // repeatable on purpose
	h.fleet = &haFleet{svc: h.svc, plan: h.haPlan, losses: &lossHistory{}}
	if h.deployment != "" {
		if h.fleet.deployed, err = openDeployment(h.deployment); err != nil {
			return err
		}
	}
	report, err := h.execute(ctx)
	if err := errors.Join(err, h.fleet.close()); err != nil {
		return err
	}
	if len(report.Broken) > 0 {
		if report.Logs, err = h.fleet.keepTranscripts(); err != nil {
			return err
		}
	}
	if err := h.print(report); err != nil || len(report.Broken) == 0 {
		return err
	}
	return errBroken
}

// execute runs the fleet, the failovers and the partners, and audits the result.
func (h *ha) execute(ctx context.Context) (haReport, error) {
	h.printf("seed %d: %d promotions, %d of them with loss; %d rows and %d payments",
		h.Seed, h.Promotions, h.Loss, h.Rows, h.Payments)
	if err := h.fleet.open(ctx); err != nil {
		return haReport{}, err
	}
	began := time.Now()
	if err := h.runPromotions(ctx); err != nil {
		return haReport{}, err
	}
	h.printf("all promotions are over after %s", time.Since(began).Round(time.Second))
	report := haReport{haPlan: h.haPlan, PromotionsDone: h.promotions}
	unsettled, err := h.settle(ctx)
	if err != nil {
		return report, err
	}
	report.Took, report.Broken = time.Since(began), unsettled
	return report, h.audit(ctx, &report)
}

// runPromotions fails over again and again while the partners work. It returns when all promotions
// are over and everything is submitted. Partners submit lost batches again.
func (h *ha) runPromotions(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range h.fleet.partners {
		group.Go(func() error { return p.run(ctx) })
		for _, t := range p.tills {
			group.Go(func() error { return t.run(ctx) })
		}
	}
	group.Go(func() error {
		lossy := h.random.Perm(h.Promotions)
		for i := range h.Promotions {
			fail := h.failOver
			if h.Redis != "" {
				fail = h.failRedis
			}
			done, err := fail(ctx, lossy[i] < h.Loss)
			if err != nil {
				return fmt.Errorf("promotion %d: %w", i+1, err)
			}
			h.mu.Lock()
			h.promotions = append(h.promotions, done)
			h.mu.Unlock()
			h.fleet.pace.promoted()
			h.printProgress(done)
		}
		h.fleet.pace.finish()
		return nil
	})
	return group.Wait()
}

// printProgress prints a line of progress after a promotion.
func (h *ha) printProgress(done promotion) {
	counts := h.fleet.counts()
	h.printf("promotion %d of %d, loss %t: promoted in %s, answer %s later, standby rebuilt in %s; "+
		"so far %d rows, %d payments, %d vanished batches", len(h.promotions), h.Promotions, done.Loss,
		done.Promoted.Round(time.Millisecond), done.Answered.Round(time.Millisecond),
		done.Rebuilt.Round(time.Millisecond),
		counts.Rows, counts.Payments, counts.Vanished.Batches)
}

// printf prints a line of progress, unless the output is JSON.
func (h *ha) printf(format string, args ...any) {
	if !h.json {
		fmt.Fprintf(h.out, format+"\n", args...)
	}
}

// haReport is the result of a run. Took is the time until everything was settled, in nanoseconds in
// JSON. Outage holds the latencies of the payment intents that are requested after the kill of a
// Redis master and before the probe's batch settles. Calm holds all others. Broken describes the
// breaches of the service's promises. Logs is the directory with the logs of the processes, if
// there are breaches.
type haReport struct {
	haPlan
	Took           time.Duration  `json:"took"`
	PromotionsDone []promotion    `json:"promotionsDone"`
	Partners       haCounts       `json:"partners"`
	Unavailable    int            `json:"unavailable"` // requests refused with 503 and Retry-After
	Outcomes       []outcomeCount `json:"outcomes"`
	Webhooks       int            `json:"webhooks,omitempty"` // events that arrived
	Repeated       int            `json:"repeated,omitempty"` // deliveries that repeat an event
	Calm           percentiles    `json:"calm,omitzero"`
	Outage         percentiles    `json:"outage,omitzero"`
	Broken         []string       `json:"broken"`
	Logs           string         `json:"logs,omitempty"`
}

// spread returns the minimum, maximum and median of a duration over all promotions, as text.
func (r *haReport) spread(of func(promotion) time.Duration) string {
	var all []time.Duration
	for _, p := range r.PromotionsDone {
		all = append(all, of(p).Round(time.Millisecond))
	}
	slices.Sort(all)
	return fmt.Sprintf("%s to %s, median %s", all[0], all[len(all)-1], all[len(all)/2])
}

// print prints the report as text or, with --json, as JSON.
func (h *ha) print(report haReport) error {
	if h.json {
		return json.NewEncoder(h.out).Encode(report)
	}
	p := report.Partners
	fmt.Fprintf(h.out,
		"\nseed %d: %d promotions, %d with loss; %d rows in %d batches and %d payments, settled within %s\n",
		report.Seed, len(report.PromotionsDone), report.Loss, p.Rows, p.Batches, p.Payments,
		report.Took.Round(time.Second))
	v := p.Vanished
	fmt.Fprintf(h.out,
		"acknowledged and lost: %d batches, %d cancellations, %d revocations, %d payment intents, %d payments\n",
		v.Batches, v.Cancellations, v.Revocations, v.Intents, v.Payments)
	fmt.Fprintf(h.out, "debits of lost payment intents: %d\n", v.Debits)
	fmt.Fprintf(h.out,
		"%d cancellations, %d revocations, %d resubmissions; %d requests answered with 503 and Retry-After\n",
		p.Cancellations, p.Revocations, p.Resubmissions, report.Unavailable)
	fmt.Fprintf(h.out, "from the kill to the next primary: %s\n",
		report.spread(func(p promotion) time.Duration { return p.Promoted }))
	if h.deployment != "" {
		fmt.Fprintf(h.out, "from the kill of Redis to its next master: %s\n",
			report.spread(func(p promotion) time.Duration { return p.Redis }))
	}
	fmt.Fprintf(h.out, "from the readiness of a new primary to a successful answer: %s\n",
		report.spread(func(p promotion) time.Duration { return p.Answered }))
	if h.Redis != "" {
		fmt.Fprintf(h.out, "%d webhook events arrived, %d deliveries repeated one\n", report.Webhooks, report.Repeated)
		fmt.Fprintf(h.out, "a new payment intent, while Redis works: %s\nwhile a master is dead: %s\n", report.Calm,
			report.Outage)
	}
	for _, o := range report.Outcomes {
		fmt.Fprintf(h.out, "%8d %s %s\n", o.Rows, o.Outcome, o.Corrected)
	}
	if len(report.Broken) == 0 {
		fmt.Fprintln(h.out,
			"0 debited twice, 0 successes lost, everything settled as on the gateway, the audit is clean")
		return nil
	}
	fmt.Fprintf(h.out, "\nThe logs of the processes are in %s. Broken:\n", report.Logs)
	for _, line := range report.Broken {
		fmt.Fprintln(h.out, line)
	}
	return nil
}
