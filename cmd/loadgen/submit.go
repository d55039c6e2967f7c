package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	cmd := s.command("submit", "Measure submissions of 1000 rows through HTTP to `svc api`, against the bare insert of the same rows", 5,
		s.run, s.close)
	cmd.Flags().IntVar(&s.batches, "batches", 100, "batches of each run")
	cmd.Flags().IntVar(&s.organisations, "organisations", 64, "organisations that submit in turn; a few batches of each fill what it may have in flight")
	s.usesSvc(cmd)
	return cmd
}

// submit measures how soon, at what cost, and how many at once, batches are accepted.
type submit struct {
	partners
	batches       int
	organisations int

	api     *process
	posters []*poster // one for each Site
	bodies  int       // submitted so far
}

// submitClients are the numbers of clients at once that are compared.
var submitClients = []int{1, 2, 4, 8}

// submitFigures are what single submissions take, one after another.
type submitFigures struct{ p50, service, postgres, cpu *series }

func newSubmitFigures(name, service string) submitFigures {
	return submitFigures{
		p50:      &series{Name: name + ", p50", Unit: "ms"},
		service:  &series{Name: name + ", CPU time of " + service, Unit: "ms"},
		postgres: &series{Name: name + ", CPU time of Postgres", Unit: "ms"},
		cpu:      &series{Name: name + ", CPU time of both", Unit: "ms"},
	}
}

func (f submitFigures) all() []*series { return []*series{f.p50, f.service, f.postgres, f.cpu} }

func (s *submit) run(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	bare, full := newSubmitFigures("bare insert", "its client"), newSubmitFigures("through HTTP", "the API")
	rates := make([]*series, len(submitClients))
	for i, n := range submitClients {
		rates[i] = &series{Name: fmt.Sprintf("through HTTP, %d at once", n), Unit: "batches/s"}
	}
	steps := []func() error{
		func() error { return s.oneByOne(ctx, bare, s.insertBare, os.Getpid()) },
		func() error { return s.oneByOne(ctx, full, s.post, s.api.cmd.Process.Pid) },
	}
	for i, n := range submitClients {
		steps = append(steps, func() error { return s.atOnce(ctx, rates[i], n) })
	}
	for range s.runs { // in turns, so that a drift of the machine meets all alike
		for _, step := range steps {
			if err := errors.Join(step(), s.forgetBatches(ctx)); err != nil {
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
		{Name: "p50, through HTTP ÷ bare insert", Value: full.p50.median() / bare.p50.median(), Target: -2},
		{Name: "CPU time of both, through HTTP ÷ bare insert", Value: full.cpu.median() / bare.cpu.median(), Target: -2},
		{Name: "batches/s, 8 at once ÷ best number", Value: rates[len(rates)-1].median() / best, Target: 0.95},
		{Name: "memory of the API", Value: memory.most(), Target: -100, Unit: "MB"},
	})
}

func (s *submit) close() error {
	if s.api == nil {
		return s.bench.close()
	}
	return errors.Join(terminateAll(s.api), s.bench.close())
}

// start starts the API, and makes partners that may use it.
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
	web := newWeb(slices.Max(submitClients))
	s.posters = make([]*poster, len(s.sites))
	for i, site := range s.sites {
		if s.posters[i], err = s.newPoster(ctx, web, base, site); err != nil {
			return err
		}
	}
	// As many at once as ever, until the API's connections have their statements prepared.
	if err := s.postAll(ctx, 100, slices.Max(submitClients)); err != nil {
		return err
	}
	if _, err := s.insertBare(ctx); err != nil {
		return err
	}
	return s.forgetBatches(ctx)
}

// newPoster makes a client of the Site's organisation.
func (b *bench) newPoster(ctx context.Context, web *http.Client, base string, site models.Site) (*poster, error) {
	id, secret, err := b.newClient(ctx, site)
	if err != nil {
		return nil, err
	}
	return newPoster(ctx, web, base, id, secret, site.ID.String())
}

// newClient makes a client of the Site's organisation with every scope.
func (b *bench) newClient(ctx context.Context, site models.Site) (id, secret string, err error) {
	c, err := b.store.CreateClient(ctx, site.OrganisationID, "loadgen", models.PartnerScopes)
	if err != nil {
		return "", "", err
	}
	secret, err = b.store.AddClientSecret(ctx, c.ID)
	return c.ID.String(), secret, err
}

// oneByOne submits batches one after another, and adds the median of their times, and the CPU time that Postgres and the one
// who uses it have needed for each.
func (s *submit) oneByOne(ctx context.Context, to submitFigures, one func(context.Context) (time.Duration, error), service int) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	took := make([]time.Duration, s.batches)
	serviceBefore, postgresBefore := ownTime(service), wholeTime(s.local.Postgres.PID())
	for i := range took {
		var err error
		if took[i], err = one(ctx); err != nil {
			return err
		}
	}
	slices.Sort(took)
	to.p50.add(quantile(took, 0.5))
	serviceUsed, postgresUsed := ownTime(service)-serviceBefore, wholeTime(s.local.Postgres.PID())-postgresBefore
	if postgresUsed > 0 { // else the system does not say
		each := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(s.batches) }
		to.service.add(each(serviceUsed))
		to.postgres.add(each(postgresUsed))
		to.cpu.add(each(serviceUsed + postgresUsed))
	}
	return nil
}

// post submits a batch through HTTP.
func (s *submit) post(ctx context.Context) (time.Duration, error) {
	s.bodies++
	p := s.posters[s.bodies%len(s.posters)]
	return p.submit(ctx, s.batchBody(fmt.Sprint("batch ", s.bodies), models.MaxBatchRows))
}

// atOnce submits batches from many clients at once, each of which waits for its answer before it goes on.
func (s *submit) atOnce(ctx context.Context, to *series, clients int) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	began := time.Now()
	err := s.postAll(ctx, s.batches, clients)
	to.add(float64(s.batches) / time.Since(began).Seconds())
	return err
}

// postAll submits that many batches, so many at once.
func (s *submit) postAll(ctx context.Context, batches, clients int) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(clients)
	for range batches {
		s.bodies++
		n := s.bodies
		group.Go(func() error {
			_, err := s.posters[n%len(s.posters)].submit(groupCtx, s.batchBody(fmt.Sprint("batch ", n), models.MaxBatchRows))
			return err
		})
	}
	return group.Wait()
}

// bareSubmit is the least that storing a batch takes on these tables: the batch and its rows, in one statement.
const bareSubmit = `
WITH b AS (
    INSERT INTO batches (site_id, id, organisation_id, batch_reference, row_count, total_amount, currency, submitted_at, settle_by,
                         fingerprint, trace_id, generation, epoch)
    VALUES ($1, $2, $3, $4, cardinality($9::text[]), $5, 'AUD', $6::bigint, $6::bigint + 86400000, $7, $8, 1, 1)
)
INSERT INTO batch_rows (site_id, batch_id, row_index, customer_reference, row_reference, amount, link_id)
SELECT $1, $2, v.n - 1, v.customer_reference, v.row_reference, v.amount, $12::uuid
FROM unnest($9::text[], $10::text[], $11::bigint[]) WITH ORDINALITY AS v (customer_reference, row_reference, amount, n)`

// insertBare stores a batch with nothing around the statement: no HTTP, no look at the customers' links, no tasks.
func (s *submit) insertBare(ctx context.Context) (time.Duration, error) {
	batch := s.newBatch(s.sites[s.submitted%len(s.sites)], models.MaxBatchRows)
	customers, rows, amounts := make([]string, len(batch.Rows)), make([]string, len(batch.Rows)), make([]int64, len(batch.Rows))
	for i, r := range batch.Rows {
		customers[i], rows[i], amounts[i] = r.CustomerReference, r.RowReference, int64(r.Amount)
	}
	id := uuid.Must(uuid.NewV7())
	began := time.Now()
	err := s.exec(ctx, bareSubmit, batch.SiteID, id, batch.OrganisationID, batch.Reference, 100*len(rows), began.UnixMilli(),
		batch.Fingerprint[:], string(batch.TraceID), customers, rows, amounts, id)
	return time.Since(began), err
}
