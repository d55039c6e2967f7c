package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"partnerbilling/models"
)

func submitCommand(out io.Writer) *cobra.Command {
	s := submit{partners: partners{bench: bench{out: out}}}
	cmd := s.command("submit",
		"Measure submissions of 1000 rows through HTTP to `svc api`, against the bare insert of the same rows", 5,
		s.run, s.close)
	cmd.Flags().IntVar(&s.batches, "batches", 100, "batches of each run")
	cmd.Flags().IntVar(&s.organisations, "organisations", 64,
		"organisations that submit in rotation; a few batches of each fill its bound of tasks in flight")
	s.addSvcFlag(cmd)
	return cmd
}

// submit measures the latency, the CPU time and the throughput of submissions through HTTP. It
// compares them with the bare insert of the same rows.
type submit struct {
	partners
	batches       int // of each run
	organisations int

	api     *process
	clients []*batchClient // one for each Site
	bodies  int            // number of batches through HTTP so far; it makes references unique
}

// submitClients lists the numbers of concurrent clients to measure.
var submitClients = []int{1, 2, 4, 8}

// submitSeries holds the results for successive submissions: the latency and the CPU times, all per
// batch in ms. service is the CPU time of the API, or of this process if it inserts the rows
// itself. cpu is the sum of service and postgres.
type submitSeries struct{ p50, service, postgres, cpu *series }

// newSubmitSeries returns series without values. service names the process that is measured beside
// Postgres.
func newSubmitSeries(name, service string) submitSeries {
	return submitSeries{
		p50:      &series{Name: name + ", p50", Unit: "ms"},
		service:  &series{Name: name + ", CPU time of " + service, Unit: "ms"},
		postgres: &series{Name: name + ", CPU time of Postgres", Unit: "ms"},
		cpu:      &series{Name: name + ", CPU time of both", Unit: "ms"},
	}
}

func (f submitSeries) all() []*series { return []*series{f.p50, f.service, f.postgres, f.cpu} }

func (s *submit) run(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	bare, full := newSubmitSeries("bare insert", "its client"), newSubmitSeries("through HTTP", "the API")
	rates := make([]*series, len(submitClients))
	for i, n := range submitClients {
		rates[i] = &series{Name: fmt.Sprintf("through HTTP, %d at once", n), Unit: "batches/s"}
	}
	steps := []func() error{
		func() error { return s.successive(ctx, bare, s.insertBare, os.Getpid()) },
		func() error { return s.successive(ctx, full, s.post, s.api.cmd.Process.Pid) },
	}
	for i, n := range submitClients {
		steps = append(steps, func() error { return s.concurrent(ctx, rates[i], n) })
	}
	for range s.runs { // in rotation, so that a drift of the machine affects all
		for _, step := range steps {
			if err := errors.Join(step(), s.deleteBatches(ctx)); err != nil {
				return err
			}
		}
	}
	memory := &series{Name: "memory of the API at its peak", Unit: "MB", Values: []float64{s.api.peakMemory()}}
	best := 0.0
	for _, r := range rates {
		best = max(best, r.median())
	}
	return s.report(slices.Concat(bare.all(), full.all(), []*series{memory}, rates), []ratio{
		medianRatio("p50, through HTTP ÷ bare insert", full.p50, bare.p50, -2),
		medianRatio("CPU time of both, through HTTP ÷ bare insert", full.cpu, bare.cpu, -2),
		{Name: "batches/s, 8 at once ÷ best number", Value: rates[len(rates)-1].median() / best, Target: 0.95},
		{Name: "memory of the API", Value: memory.max(), Target: -100, Unit: "MB"},
	})
}

func (s *submit) close() error { return errors.Join(terminateAll(s.api), s.bench.close()) }

// start starts the API, creates partners with clients, and submits some batches as a warm-up.
func (s *submit) start(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.addPartners(ctx, s.organisations); err != nil {
		return err
	}
	var base string
	var err error
	if s.api, base, err = s.startAPI(); err != nil {
		return err
	}
	if s.clients, err = s.newBatchClients(ctx, base, slices.Max(submitClients)); err != nil {
		return err
	}
	// With the maximum concurrency, all connections of the API prepare their statements.
	if err := s.postAll(ctx, 100, slices.Max(submitClients)); err != nil {
		return err
	}
	if _, err := s.insertBare(ctx); err != nil {
		return err
	}
	return s.deleteBatches(ctx)
}

// newClient creates an API client of the Site's organisation with all partner scopes, and returns
// its credentials.
func (b *bench) newClient(ctx context.Context, site models.Site) (id, secret string, err error) {
	c, err := b.store.CreateClient(ctx, site.OrganisationID, "loadgen", models.PartnerScopes)
	if err != nil {
		return "", "", err
	}
	secret, err = b.store.AddClientSecret(ctx, c.ID)
	return c.ID.String(), secret, err
}

// successive submits one batch after another. submitOne submits a batch and returns the latency.
// successive adds the median latency, and the CPU time per batch of Postgres and of the process
// with the pid.
func (s *submit) successive(
	ctx context.Context, to submitSeries, submitOne func(context.Context) (time.Duration, error), pid int,
) error {
	if err := s.checkpoint(ctx); err != nil {
		return err
	}
	took := make([]time.Duration, s.batches)
	serviceBefore, postgresBefore := cpuTime(pid), treeCPUTime(s.local.Postgres.PID())
	for i := range took {
		var err error
		if took[i], err = submitOne(ctx); err != nil {
			return err
		}
	}
	slices.Sort(took)
	to.p50.add(quantile(took, 0.5))
	serviceUsed := cpuTime(pid) - serviceBefore
	postgresUsed := treeCPUTime(s.local.Postgres.PID()) - postgresBefore
	if postgresUsed > 0 { // 0 on systems without /proc
		each := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(s.batches) }
		to.service.add(each(serviceUsed))
		to.postgres.add(each(postgresUsed))
		to.cpu.add(each(serviceUsed + postgresUsed))
	}
	return nil
}

// post submits a batch through HTTP and returns the latency.
func (s *submit) post(ctx context.Context) (time.Duration, error) {
	s.bodies++
	p := s.clients[s.bodies%len(s.clients)]
	return p.submit(ctx, s.batchBody(fmt.Sprint("batch ", s.bodies), models.MaxBatchRows))
}

// concurrent measures the rate at which a number of concurrent clients submit batches, and adds it
// to the series. Each client submits its next batch when the last one is answered.
func (s *submit) concurrent(ctx context.Context, to *series, clients int) error {
	if err := s.checkpoint(ctx); err != nil {
		return err
	}
	began := time.Now()
	err := s.postAll(ctx, s.batches, clients)
	to.add(float64(s.batches) / time.Since(began).Seconds())
	return err
}

// postAll submits a number of batches through HTTP, as many at the same time as there are clients.
func (s *submit) postAll(ctx context.Context, batches, clients int) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(clients)
	for range batches {
		s.bodies++
		n := s.bodies
		group.Go(func() error {
			body := s.batchBody(fmt.Sprint("batch ", n), models.MaxBatchRows)
			_, err := s.clients[n%len(s.clients)].submit(groupCtx, body)
			return err
		})
	}
	return group.Wait()
}

// bareSubmit inserts a batch and its rows, and does nothing else. It is the minimum on the tables
// of the service.
const bareSubmit = `
WITH b AS (
    INSERT INTO batches (site_id, id, organisation_id, batch_reference, row_count, total_amount, currency,
                         submitted_at, settle_by, fingerprint, trace_id, generation, epoch)
    VALUES ($1, $2, $3, $4, cardinality($9::text[]), $5, 'AUD', $6::bigint, $6::bigint + 86400000, $7, $8, 1, 1)
)
INSERT INTO batch_rows (site_id, batch_id, row_index, customer_reference, row_reference, amount, link_id)
SELECT $1, $2, v.n - 1, v.customer_reference, v.row_reference, v.amount, $12::uuid
FROM unnest($9::text[], $10::text[], $11::bigint[]) WITH ORDINALITY AS v (customer_reference, row_reference, amount, n)`

// insertBare stores a batch with bareSubmit, and returns the latency. There is no HTTP, no check of
// customer links, and no task.
func (s *submit) insertBare(ctx context.Context) (time.Duration, error) {
	batch := s.newBatch(s.sites[s.submitted%len(s.sites)], models.MaxBatchRows)
	var customers, rows []string
	var amounts []int64
	for _, r := range batch.Rows {
		customers, rows = append(customers, r.CustomerReference), append(rows, r.RowReference)
		amounts = append(amounts, int64(r.Amount))
	}
	id := uuid.Must(uuid.NewV7())
	began := time.Now()
	err := s.exec(ctx, bareSubmit, batch.SiteID, id, batch.OrganisationID, batch.Reference, 100*len(rows),
		began.UnixMilli(), batch.Fingerprint[:], string(batch.TraceID), customers, rows, amounts, id)
	return time.Since(began), err
}
