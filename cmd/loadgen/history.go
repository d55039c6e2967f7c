package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

func historyCommand(out io.Writer) *cobra.Command {
	h := history{bench: bench{out: out}}
	cmd := h.command("history",
		"Measure submissions, drains, lists and intents with 90 days of history against without, and retention", 5,
		h.run, h.close)
	cmd.Flags().IntVar(&h.rows, "rows", 30_000_000, "settled rows of the history; a tenth as many payments")
	cmd.Flags().IntVar(&h.batches, "batches", 50, "batches of each measurement of submissions")
	cmd.Flags().IntVar(&h.level, "level", 10_000, "rows of the backlog in each measurement of drains")
	cmd.Flags().DurationVar(&h.measured, "measure", 5*time.Second,
		"duration of a measurement of drains and of intents; lists take a fifth of it")
	h.addSvcFlag(cmd)
	return cmd
}

// history measures whether settled rows and payments of the past slow the service down. Two
// databases on the same servers do the same work in rotation. One has the history of the whole
// retention, the other one has none. In the end, it measures how retention removes old rows.
type history struct {
	bench
	rows, batches, level int // rows of the history; see the flags for the others
	measured             time.Duration

	with, without *historySide
}

// historySide is one of the two databases, with an API on it.
type historySide struct {
	partners
	api     *process
	base    string           // URL of the API
	clients []*batchClient   // one for each Site
	day     [2]models.Millis // beginning and end of the day whose lists are compared
	sent    int              // number of batches so far; it makes their references unique
}

// historyQuantity is a quantity that history must not change.
type historyQuantity struct {
	name, unit string
	target     float64 // for the value with history ÷ without; see ratio
	measure    func(ctx context.Context, s *historySide) (float64, error)

	with, without series
}

// historyDay is the number of batches, and of payment intents, in the lists of the compared day.
const historyDay = 100

// maxGrowth is the target for latencies with history ÷ without, a maximum as ratio defines it.
const maxGrowth = -1.1

func (h *history) run(ctx context.Context) error {
	if err := h.start(ctx); err != nil {
		return err
	}
	quantities := h.quantities()
	sides := []*historySide{h.without, h.with}
	for range h.runs {
		for _, q := range quantities {
			// The order alternates, so that a drift of the machine affects both.
			for _, side := range sides {
				if err := h.measure(ctx, q, side); err != nil {
					return fmt.Errorf("%s: %w", q.name, err)
				}
			}
			slices.Reverse(sides)
		}
	}
	all, ratios, err := h.measureRetention(ctx)
	if err != nil {
		return fmt.Errorf("retention: %w", err)
	}
	for i := len(quantities) - 1; i >= 0; i-- {
		q := quantities[i]
		all = slices.Concat([]*series{&q.without, &q.with}, all)
		ratios = slices.Insert(ratios, 0,
			medianRatio(q.name+", with history ÷ without", &q.with, &q.without, q.target))
	}
	return h.report(all, ratios)
}

// measure measures the quantity once on the side.
func (h *history) measure(ctx context.Context, q *historyQuantity, side *historySide) error {
	if err := h.checkpoint(ctx); err != nil {
		return err
	}
	value, err := q.measure(ctx, side)
	if side == h.with {
		q.with.add(value)
	} else {
		q.without.add(value)
	}
	return err
}

// quantities returns all quantities, without values.
func (h *history) quantities() []*historyQuantity {
	ms := func(name string, measure func(context.Context, *historySide) (float64, error)) *historyQuantity {
		return &historyQuantity{name: name + ", p50", unit: "ms", target: maxGrowth, measure: measure}
	}
	quantities := []*historyQuantity{
		ms("a batch of 1000 rows", func(ctx context.Context, s *historySide) (float64, error) {
			return s.submitP50(ctx, h.batches)
		}),
		{name: "drain", unit: "rows/s", target: 0.9, measure: h.drain},
		ms("a payment intent", func(ctx context.Context, s *historySide) (float64, error) {
			return s.callP50(ctx, h.measured, s.intentCall())
		}),
	}
	for _, l := range []struct{ of, path, from, to string }{
		{"batches", "/billing/sites/%s/batches?limit=50", "submittedFrom", "submittedTo"},
		{"movements", "/billing/sites/%s/movements?limit=50", "from", "to"},
		{"payment intents", "/checkout/%s/payment-intent?limit=50", "createdFrom", "createdTo"},
	} {
		list := func(s *historySide, query string) *call {
			return s.call(fmt.Sprintf(l.path, s.sites[0].ID)+query, "", http.StatusOK)
		}
		quantities = append(quantities,
			ms("a page of one day's "+l.of, func(ctx context.Context, s *historySide) (float64, error) {
				day := fmt.Sprintf("&%s=%d&%s=%d", l.from, s.day[0], l.to, s.day[1])
				return s.callP50(ctx, h.measured/5, list(s, day))
			}),
			ms("a page of all "+l.of, func(ctx context.Context, s *historySide) (float64, error) {
				return s.callP50(ctx, h.measured/5, list(s, ""))
			}))
	}
	for _, q := range quantities {
		q.with = series{Name: q.name + ", with history", Unit: q.unit}
		q.without = series{Name: q.name + ", without", Unit: q.unit}
	}
	return quantities
}

// drain returns the rate at which a worker settles rows, in rows per second. Then it settles the
// rest.
func (h *history) drain(ctx context.Context, s *historySide) (float64, error) {
	var rate series
	err := s.drainAt(ctx, h.level, h.measured, &rate)
	return rate.median(), errors.Join(err, s.drainRest(ctx))
}

// start creates both sides, each with the batches and payment intents of one day, and writes the
// history of one side.
func (h *history) start(ctx context.Context) error {
	if err := h.open(ctx); err != nil {
		return err
	}
	h.with = &historySide{partners: partners{bench: h.bench}}
	beside, err := h.beside(ctx)
	h.without = &historySide{partners: partners{bench: beside}}
	if err != nil {
		return err
	}
	for _, side := range []*historySide{h.with, h.without} {
		if err := side.start(ctx); err != nil {
			return err
		}
	}
	if err := h.with.writeHistory(ctx, h.rows); err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	return errors.Join(h.with.execWithoutTimeout(ctx, "VACUUM ANALYZE"),
		h.without.execWithoutTimeout(ctx, "VACUUM ANALYZE"))
}

func (h *history) close() error {
	var err error
	for _, side := range []*historySide{h.with, h.without} {
		if side != nil {
			err = errors.Join(err, terminateAll(side.api))
		}
	}
	if h.without != nil {
		err = errors.Join(err, h.without.disconnect())
	}
	return errors.Join(err, h.bench.close())
}

// start starts the API, creates partners, and makes the batches and payment intents of a day.
func (s *historySide) start(ctx context.Context) error {
	if err := s.addPartners(ctx, benchSites); err != nil {
		return err
	}
	var err error
	if s.api, s.base, err = s.startAPI(); err != nil {
		return err
	}
	if s.clients, err = s.newBatchClients(ctx, s.base, historySubmitters); err != nil {
		return err
	}
	if s.day[0], err = s.store.Now(ctx); err != nil {
		return err
	}
	if _, err := s.submitP50(ctx, historyDay); err != nil {
		return err
	}
	c := newLoadClient(1)
	for range historyDay {
		if _, err := c.createIntent(ctx, s.intentCall()); err != nil {
			return err
		}
	}
	s.day[1], err = s.store.Now(ctx)
	return err
}

// submitP50 submits batches of 1000 rows one after another, and returns their median latency in ms.
// A worker then settles the batches.
func (s *historySide) submitP50(ctx context.Context, batches int) (float64, error) {
	took := make([]time.Duration, batches)
	for i := range took {
		s.sent++
		var err error
		body := s.batchBody(fmt.Sprint("batch ", s.sent), models.MaxBatchRows)
		if took[i], err = s.clients[s.sent%len(s.clients)].submit(ctx, body); err != nil {
			return 0, err
		}
	}
	slices.Sort(took)
	return quantile(took, 0.5), s.drainRest(ctx)
}

// callP50 makes a call again and again for the measured time, and returns the median latency in ms.
// A warm-up of a tenth of that time comes first.
func (s *historySide) callP50(ctx context.Context, measured time.Duration, call *call) (float64, error) {
	c := s.measuringClient(1)
	if _, _, err := c.closedLoop(ctx, 1, measured/10, call); err != nil {
		return 0, err
	}
	latencies, _, err := c.closedLoop(ctx, 1, measured, call)
	return quantile(latencies, 0.5), err
}

// call returns a call of the API by the first partner.
func (s *historySide) call(path, body string, want int) *call {
	return &call{url: s.base + path, authorization: bearer(s.clients[0].token), body: body, want: want}
}

// intentCall returns a call that creates a payment intent of the first Site.
func (s *historySide) intentCall() *call {
	return s.call(fmt.Sprintf("/checkout/%s/payment-intent", s.sites[0].ID),
		`{"amount":1250,"orderId":"order 4711","qrCodeFormat":"text"}`, http.StatusCreated)
}
