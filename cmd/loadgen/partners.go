package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"partnerbilling/models"
)

// partners are what scenarios on debits work with: organisations with one Site each, whose customers all pay.
type partners struct {
	bench
	sites     []models.Site
	submitted int // batches so far: their names
}

// partnerCustomers are the customers of each Site, named 0, 1, …; the rows of a batch take turns.
const partnerCustomers = 100

// organisation makes an organisation with Sites.
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

// addPartners makes partners with customers. Postgres knows their tables, as it does those of a service that has run for a minute.
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

func (b *bench) customer(ctx context.Context, site models.Site, reference string) error {
	return signUp(ctx, b.store, site, reference, models.BehaviourPays)
}

// signUp makes a customer who has signed up.
func signUp(ctx context.Context, store *models.Store, site models.Site, reference string, behaviour models.Behaviour) error {
	link, _, err := store.CreateInvitation(ctx, models.NewInvitation{SiteID: site.ID, CustomerReference: reference}, nil)
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

// submitConcurrency is how many batches of a backlog are submitted at once.
const submitConcurrency = 4

// submit stores that many rows in batches of 1000, the Sites in turn, without telling a dispatcher.
func (p *partners) submit(ctx context.Context, rows int) error { return p.submitTo(ctx, p.sites, rows) }

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

// newBatch makes a batch under a reference of its own.
func (p *partners) newBatch(site models.Site, rows int) models.NewBatch {
	p.submitted++
	batch := models.NewBatch{
		SiteID: site.ID, OrganisationID: site.OrganisationID, Reference: fmt.Sprint(p.submitted), TraceID: models.NewTraceID(),
		Rows: make([]models.NewRow, rows),
	}
	for i := range batch.Rows {
		batch.Rows[i] = models.NewRow{CustomerReference: fmt.Sprint(i % partnerCustomers), RowReference: fmt.Sprint(i), Amount: 100}
	}
	return batch
}

// openRows reads how many rows are not settled.
func (b *bench) openRows(ctx context.Context) (n int, err error) {
	err = b.store.DB().NewRaw("SELECT coalesce(sum(row_count - settled_count), 0) FROM batches WHERE settled_at IS NULL").Scan(ctx, &n)
	return n, err
}

// awaitSettled waits until no batch is open.
func (b *bench) awaitSettled(ctx context.Context) error {
	return await(ctx, 20*time.Millisecond, func() (settled bool, err error) {
		err = b.store.DB().NewRaw("SELECT NOT EXISTS (SELECT FROM batches WHERE settled_at IS NULL)").Scan(ctx, &settled)
		return settled, err
	})
}

// counts reads how many rows all batches have, and how many of them are settled.
func (b *bench) counts(ctx context.Context) (rows, settled int, err error) {
	err = b.store.DB().NewRaw("SELECT coalesce(sum(row_count), 0), coalesce(sum(settled_count), 0) FROM batches").Scan(ctx, &rows, &settled)
	return rows, settled, err
}
