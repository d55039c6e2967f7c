package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/jobs"
	"partnerbilling/jobs/rail"
	"partnerbilling/models"
	"partnerbilling/queue"
)

func drainCommand(out io.Writer) *cobra.Command {
	d := drain{bench: bench{out: out}}
	cmd := &cobra.Command{
		Use: "drain", Args: cobra.NoArgs,
		Short: "Measure how fast one worker settles a backlog of rows, against plain Asynq and against bare SQL",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(d.run(cmd.Context()), d.close())
		},
	}
	cmd.Flags().IntVar(&d.rows, "rows", 200_000, "rows of each run, in batches of 1000")
	cmd.Flags().IntVar(&d.runs, "runs", 5, "runs of each")
	cmd.Flags().IntVar(&d.references, "reference-tasks", 20_000, "tasks of each run of plain Asynq")
	cmd.Flags().StringSliceVar(&d.only, "only", nil, "measure only these: noop, update, bare, instant, sandbox")
	cmd.Flags().BoolVar(&d.json, "json", false, "print JSON")
	return cmd
}

// drain measures the engine on a backlog.
type drain struct {
	bench
	rows       int
	references int
	only       []string

	sites     []models.Site
	submitted int
}

// drainSites is over how many Sites the backlog is spread, each of an organisation of its own.
const drainSites = 4

// drainCustomers are the customers of each Site; rows take turns.
const drainCustomers = 100

func (d *drain) run(ctx context.Context) error {
	if err := d.open(ctx); err != nil {
		return err
	}
	if err := d.seed(ctx); err != nil {
		return err
	}
	noop := &series{Name: "Asynq, nothing to do", Unit: "tasks/s"}
	update := &series{Name: "Asynq, one update a task", Unit: "tasks/s"}
	bare := &series{Name: "bare SQL, chunks of 100", Unit: "rows/s"}
	instant := &series{Name: "engine, rail without latency", Unit: "rows/s"}
	sandbox := &series{Name: "engine, sandbox rail", Unit: "rows/s"}
	parts := []drainPart{
		{"noop", noop, d.asynqNoop}, {"update", update, d.asynqUpdate}, {"bare", bare, d.bareSQL},
		{"instant", instant, func(ctx context.Context) (float64, error) { return d.engine(ctx, instantRail{}) }},
		{"sandbox", sandbox, func(ctx context.Context) (float64, error) { return d.engine(ctx, rail.NewSandbox(d.store)) }},
	}
	for range d.runs { // in turns, so that a drift of the machine meets all alike
		for _, part := range parts {
			if len(d.only) > 0 && !slices.Contains(d.only, part.name) {
				continue
			}
			if err := d.exec(ctx, "CHECKPOINT"); err != nil {
				return err
			}
			rate, err := part.measure(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", part.series.Name, err)
			}
			part.series.add(rate)
		}
	}
	return d.report([]*series{noop, update, bare, instant, sandbox}, []ratio{
		{"rail without latency ÷ bare SQL", instant.median() / bare.median(), 0.6},
		{"rail without latency ÷ Asynq with an update", instant.median() / update.median(), 5},
		{"sandbox rail ÷ Asynq with an update", sandbox.median() / update.median(), 3},
	})
}

// drainPart is one of the things that are compared.
type drainPart struct {
	name    string
	series  *series
	measure func(context.Context) (float64, error)
}

func (d *drain) seed(ctx context.Context) error {
	for i := range drainSites {
		organisation, err := d.store.CreateOrganisation(ctx, fmt.Sprint("organisation ", i))
		if err != nil {
			return err
		}
		site, err := d.store.CreateSite(ctx, organisation.ID, "Site")
		if err != nil {
			return err
		}
		d.sites = append(d.sites, site)
		for c := range drainCustomers {
			if err := d.customer(ctx, site, fmt.Sprint(c)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *drain) customer(ctx context.Context, site models.Site, reference string) error {
	link, _, err := d.store.CreateInvitation(ctx, models.NewInvitation{SiteID: site.ID, CustomerReference: reference}, nil)
	if err != nil {
		return err
	}
	party := models.Party{CustomerID: link.ID.String(), AgreementID: link.ID.String()}
	if err := d.store.OpenSandboxAccount(ctx, party.AgreementID, models.BehaviourPays); err != nil {
		return err
	}
	_, err = d.store.CompleteLink(ctx, link.ID, party)
	return err
}

// backlog submits the rows of one run.
func (d *drain) backlog(ctx context.Context) error {
	for range d.rows / models.MaxBatchRows {
		site := d.sites[d.submitted%len(d.sites)]
		batch := models.NewBatch{
			SiteID: site.ID, OrganisationID: site.OrganisationID, Reference: fmt.Sprint(d.submitted), TraceID: models.NewTraceID(),
		}
		for i := range models.MaxBatchRows {
			batch.Rows = append(batch.Rows, models.NewRow{
				CustomerReference: fmt.Sprint(i % drainCustomers), RowReference: fmt.Sprint(i), Amount: 100,
			})
		}
		if _, err := d.store.SubmitBatch(ctx, batch); err != nil {
			return err
		}
		d.submitted++
	}
	return nil
}

// engine lets one worker, as svc worker has it, settle a backlog.
func (d *drain) engine(ctx context.Context, payments rail.Rail) (float64, error) {
	if err := d.backlog(ctx); err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	dispatcher := queue.NewDispatcher(d.store, d.redis, queue.DispatcherConfig{Log: d.log})
	server := queue.NewServer(d.redis, jobs.New(jobs.Config{
		Store: d.store, Rail: payments, RailConcurrency: referenceConcurrency * models.ChunkRows, Log: d.log,
	}),
		queue.ServerConfig{Queues: []models.Queue{models.QueueDebits}, Log: d.log})
	began := time.Now()
	if err := server.Start(); err != nil {
		stop()
		return 0, err
	}
	dispatched := make(chan error, 1)
	go func() { dispatched <- dispatcher.Run(ctx) }()
	err := d.awaitSettled(ctx)
	took := time.Since(began)
	stop()
	server.Shutdown()
	return float64(d.rows) / took.Seconds(), errors.Join(err, <-dispatched)
}

// awaitSettled waits until no batch is open.
func (d *drain) awaitSettled(ctx context.Context) error {
	for {
		var open bool
		if err := d.store.DB().NewRaw("SELECT EXISTS (SELECT FROM batches WHERE settled_at IS NULL)").Scan(ctx, &open); err != nil {
			return err
		}
		if !open {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// instantRail answers at once that everything was debited.
type instantRail struct{}

func (instantRail) Debit(_ context.Context, debits []rail.Debit, report func(int, rail.Result)) {
	for i := range debits {
		report(i, rail.Result{Status: rail.Succeeded})
	}
}

func (instantRail) Lookup(_ context.Context, keys []string, report func(int, rail.Result)) {
	for i := range keys {
		report(i, rail.Result{Status: rail.Unknown})
	}
}

func (instantRail) Cancel(_ context.Context, keys []string, report func(int, rail.Result)) {
	for i := range keys {
		report(i, rail.Result{Status: rail.Unknown})
	}
}
