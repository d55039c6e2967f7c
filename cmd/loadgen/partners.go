package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"partnerbilling/models"
)

// partners is a bench for scenarios that debit. It has organisations with one Site each, and their
// customers, who all pay.
type partners struct {
	bench
	sites     []models.Site
	submitted int // number of batches so far; it makes their references unique
}

// partnerCustomers is the number of customers of each Site, with the references 0, 1, …. The rows
// of a batch debit them in rotation.
const partnerCustomers = 100

// organisation creates an organisation with a number of Sites, and returns the Sites.
func (b *bench) organisation(ctx context.Context, sites int) ([]models.Site, error) {
	organisation, err := b.store.CreateOrganisation(ctx, "organisation")
	if err != nil {
		return nil, err
	}
	made := make([]models.Site, sites)
	for i := range made {
		if made[i], err = b.store.CreateSite(ctx, organisation.ID, fmt.Sprint("Site ", i)); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// addPartners creates n organisations, each with a Site and its customers. It analyses the tables,
// as autovacuum does in a running service.
func (p *partners) addPartners(ctx context.Context, n int) error {
	p.sites = make([]models.Site, n)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for i := range n {
		group.Go(func() error {
			sites, err := p.organisation(groupCtx, 1)
			if err != nil {
				return err
			}
			p.sites[i] = sites[0]
			for c := range partnerCustomers {
				if err := p.customer(groupCtx, sites[0], fmt.Sprint(c)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return p.exec(ctx, "ANALYZE")
}

// customer signs up a customer that pays.
func (b *bench) customer(ctx context.Context, site models.Site, reference string) error {
	return signUp(ctx, b.store, site, reference, models.BehaviourPays)
}

// signUp invites a customer and completes the sign-up, with a sandbox account of the behaviour.
func signUp(
	ctx context.Context, store *models.Store, site models.Site, reference string, behaviour models.Behaviour,
) error {
	invitation := models.NewInvitation{SiteID: site.ID, CustomerReference: reference}
	link, _, err := store.CreateInvitation(ctx, invitation, nil)
	if err != nil {
		return err
	}
	party := models.Party{CustomerID: link.ID.String(), AgreementID: link.ID.String()}
	if err := store.OpenSandboxAccount(ctx, party.AgreementID, behaviour); err != nil {
		return err
	}
	_, err = store.CompleteLink(ctx, link.ID, party)
	return err
}

// submitConcurrency is the number of batches that a backlog's submission stores at the same time.
const submitConcurrency = 4

// submit stores rows in batches of the maximum size, for the Sites in rotation. It does not notify
// a dispatcher.
func (p *partners) submit(ctx context.Context, rows int) error { return p.submitTo(ctx, p.sites, rows) }

// submitTo is submit for some of the Sites.
func (p *partners) submitTo(ctx context.Context, sites []models.Site, rows int) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(submitConcurrency)
	for rows > 0 {
		n := min(rows, models.MaxBatchRows)
		batch := p.newBatch(sites[p.submitted%len(sites)], n)
		group.Go(func() error {
			_, err := p.store.SubmitBatch(groupCtx, batch)
			return err
		})
		rows -= n
	}
	return group.Wait()
}

// newBatch returns a batch with a number of rows and a new reference.
func (p *partners) newBatch(site models.Site, rows int) models.NewBatch {
	p.submitted++
	return batchOf(site, fmt.Sprint(p.submitted), rows)
}

// batchOf returns a batch. Its rows debit 100 minor units each, from the Site's customers in
// rotation.
func batchOf(site models.Site, reference string, rows int) models.NewBatch {
	batch := models.NewBatch{
		SiteID: site.ID, OrganisationID: site.OrganisationID, Reference: reference,
		TraceID: models.NewTraceID(), Rows: make([]models.NewRow, rows),
	}
	for i := range batch.Rows {
		batch.Rows[i] = models.NewRow{
			CustomerReference: fmt.Sprint(i % partnerCustomers), RowReference: fmt.Sprint(i), Amount: 100,
		}
	}
	return batch
}

// openRows returns the number of rows that are not settled.
func (b *bench) openRows(ctx context.Context) (n int, err error) {
	const query = "SELECT coalesce(sum(row_count - settled_count), 0) FROM batches WHERE settled_at IS NULL"
	err = b.store.DB().NewRaw(query).Scan(ctx, &n)
	return n, err
}

// awaitSettled waits until no batch is open.
func (b *bench) awaitSettled(ctx context.Context) error {
	const query = "SELECT NOT EXISTS (SELECT FROM batches WHERE settled_at IS NULL)"
	return await(ctx, 20*time.Millisecond, func() (settled bool, err error) {
		err = b.store.DB().NewRaw(query).Scan(ctx, &settled)
		return settled, err
	})
}

// counts returns the number of rows of all batches, and how many of them are settled.
func (b *bench) counts(ctx context.Context) (rows, settled int, err error) {
	const query = "SELECT coalesce(sum(row_count), 0), coalesce(sum(settled_count), 0) FROM batches"
	err = b.store.DB().NewRaw(query).Scan(ctx, &rows, &settled)
	return rows, settled, err
}

// settledRate measures, after a warm-up, how many rows settle per second. It measures for the given
// time. While no row has settled, it continues for the same time, again and again. It returns an
// error if no row is open at the end, since the rate would be too low.
func (b *bench) settledRate(ctx context.Context, warmUp, measured time.Duration) (float64, error) {
	if err := wait(ctx, warmUp); err != nil {
		return 0, err
	}
	_, before, err := b.counts(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	for {
		if err := wait(ctx, measured); err != nil {
			return 0, err
		}
		all, after, err := b.counts(ctx)
		took := time.Since(began)
		switch {
		case err != nil:
			return 0, err
		case after == all:
			return 0, errors.New("the backlog was settled before the end of the measurement")
		case after > before:
			return float64(after-before) / took.Seconds(), nil
		}
	}
}
