package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"partnerbilling/api/client"
	"partnerbilling/models"
)

// haPartner is a partner's program for one Site. It remembers everything that it was told, and when; after each promotion with
// loss it looks for what has vanished, and does that again under the same reference.
//
// No two rows of a run have the same amount. So the gateway's list tells for which row it debited, whatever the service
// calls its keys.
type haPartner struct {
	number    int
	fleet     *haFleet
	api       *client.Client
	site      models.SiteID
	random    *rand.Rand
	rows      int // to submit
	customers []*haCustomer
	tills     []*till

	batches   []*haBatch
	submitted int // rows
	windows   int // of loss, that it has looked after

	mu     sync.Mutex
	counts haCounts
	broken []string
}

// haBatch is a batch that was submitted.
type haBatch struct {
	client.Batch
	first     time.Time // when it was first sent
	acked     span      // the last 202
	cancelled *span     // the last 200 to a cancellation
	outcomes  []string  // as last seen; nil if never
	final     []string  // the same, but corrected ones where there are such
	seen      span
	vanished  bool // at least once
}

// haCounts count what partners have done, and what of it was lost though it had been acknowledged.
type haCounts struct {
	Rows          int `json:"rows"`
	Batches       int `json:"batches"`
	Payments      int `json:"payments"`
	Resubmissions int `json:"resubmissions"`
	Cancellations int `json:"cancellations"`
	Revocations   int `json:"revocations"`

	Vanished vanishedCounts `json:"vanished"`
}

// vanishedCounts count acknowledged things that were lost. Debits are those of payment intents that have vanished: no one
// but the gateway knows of them.
type vanishedCounts struct {
	Batches       int `json:"batches"`
	Cancellations int `json:"cancellations"`
	Revocations   int `json:"revocations"`
	Intents       int `json:"intents"`
	Payments      int `json:"payments"`
	Debits        int `json:"debits"`
}

func (c *haCounts) add(o haCounts) {
	c.Rows, c.Batches, c.Payments = c.Rows+o.Rows, c.Batches+o.Batches, c.Payments+o.Payments
	c.Resubmissions, c.Cancellations, c.Revocations = c.Resubmissions+o.Resubmissions, c.Cancellations+o.Cancellations, c.Revocations+o.Revocations
	v, w := &c.Vanished, o.Vanished
	v.Batches, v.Cancellations, v.Revocations = v.Batches+w.Batches, v.Cancellations+w.Cancellations, v.Revocations+w.Revocations
	v.Intents, v.Payments, v.Debits = v.Intents+w.Intents, v.Payments+w.Payments, v.Debits+w.Debits
}

const (
	// rowAmounts is how many amounts each Site has for its rows.
	rowAmounts = 10_000_000
	// haBatchRows is the most rows of a batch: small ones make many acknowledgements.
	haBatchRows = 100
)

// run submits, looks aside and submits again what vanished, until all promotions are over and all is submitted.
func (p *haPartner) run(ctx context.Context) error {
	for {
		over := p.fleet.pace.isOver()
		if err := p.reconcile(ctx); err != nil {
			return err
		}
		switch due := p.fleet.pace.due(p.rows); {
		case p.submitted < due:
			if err := p.submitNext(ctx); err != nil {
				return err
			}
		case over:
			return nil
		default:
			if !sleep(ctx, 20*time.Millisecond) {
				return ctx.Err()
			}
		}
	}
}

// next is a new batch. A revoked customer is among its customers as often as another one.
func (p *haPartner) next() *haBatch {
	n := min(1+p.random.IntN(haBatchRows), p.rows-p.submitted)
	b := &haBatch{Batch: client.Batch{BatchReference: fmt.Sprintf("%d/%d é", p.number, len(p.batches)), Rows: make([]client.Row, n)}}
	for i := range b.Rows {
		p.submitted++
		b.Rows[i] = client.Row{
			CustomerReference: fmt.Sprint(p.random.IntN(len(p.customers))), RowReference: fmt.Sprint(i),
			Amount: int64(p.number*rowAmounts + p.submitted),
		}
	}
	return b
}

func (p *haPartner) submitNext(ctx context.Context) error {
	b := p.next()
	b.first = time.Now()
	if err := p.submit(ctx, b); err != nil {
		return err
	}
	p.batches = append(p.batches, b)
	p.count(func(c *haCounts) { c.Batches++; c.Rows += len(b.Rows) })
	return p.aside(ctx)
}

// submit submits a batch until that is acknowledged. What had no answer, or 503, is sent again as it is.
func (p *haPartner) submit(ctx context.Context, b *haBatch) error {
	var receipt client.Receipt
	var began time.Time
	err := insistent(ctx, func() (err error) {
		began = time.Now()
		receipt, err = p.api.SubmitBatch(ctx, p.site.String(), b.Batch)
		return err
	})
	if err != nil {
		return fmt.Errorf("submit %s: %w", b.BatchReference, err)
	}
	b.acked = since(began)
	if receipt.BatchReference != b.BatchReference || receipt.RowCount != len(b.Rows) {
		p.breaks("%s: %d rows were submitted, and the receipt says %+v", b.BatchReference, len(b.Rows), receipt)
	}
	return nil
}

// aside does what is drawn, with one of the latest batches or a customer.
func (p *haPartner) aside(ctx context.Context) error {
	latest := p.batches[max(0, len(p.batches)-outstandingBatches):]
	b := latest[p.random.IntN(len(latest))]
	switch n := p.random.IntN(20); {
	case n < 2:
		return p.cancel(ctx, b)
	case n < 5:
		return p.read(ctx, b)
	case n < 6:
		p.count(func(c *haCounts) { c.Resubmissions++ })
		return p.submit(ctx, b)
	case n < 7:
		return p.revoke(ctx, p.random.IntN(len(p.customers)))
	default:
		return nil
	}
}

// cancel cancels a batch, unless it has vanished.
func (p *haPartner) cancel(ctx context.Context, b *haBatch) error {
	began, err := p.call(ctx, func() error {
		_, err := p.api.CancelBatch(ctx, p.site.String(), b.BatchReference)
		return err
	})
	switch {
	case isMissing(err):
		return p.missing(ctx, b)
	case err != nil:
		return fmt.Errorf("cancel %s: %w", b.BatchReference, err)
	}
	answered := since(began)
	b.cancelled = &answered
	p.count(func(c *haCounts) { c.Cancellations++ })
	return nil
}

// read looks at a batch, and submits it again if it has vanished.
func (p *haPartner) read(ctx context.Context, b *haBatch) error {
	var got client.BatchStatus
	began, err := p.call(ctx, func() (err error) {
		got, err = p.api.Batch(ctx, p.site.String(), b.BatchReference)
		return err
	})
	switch {
	case isMissing(err):
		return p.missing(ctx, b)
	case err != nil:
		return fmt.Errorf("read %s: %w", b.BatchReference, err)
	}
	p.look(b, got, since(began))
	return nil
}

// call repeats a call until it is answered, and returns when the last one began.
func (p *haPartner) call(ctx context.Context, do func() error) (began time.Time, err error) {
	err = insistent(ctx, func() error {
		began = time.Now()
		return do()
	})
	return began, err
}

// customerNumber is the customer of a row among those of its Site.
func customerNumber(row client.Row) int {
	n, _ := strconv.Atoi(row.CustomerReference)
	return n
}

func isMissing(err error) bool {
	var refused *client.Error
	return errors.As(err, &refused) && refused.Status == 404
}

// missing submits an acknowledged batch again that is not there.
func (p *haPartner) missing(ctx context.Context, b *haBatch) error {
	if !p.fleet.losses.mayBeLost(b.acked) {
		p.breaks("%s was acknowledged and has vanished, and nothing was lost", b.BatchReference)
	}
	p.count(func(c *haCounts) {
		c.Vanished.Batches++
		c.Resubmissions++
		if b.cancelled != nil {
			c.Vanished.Cancellations++
		}
	})
	b.vanished, b.outcomes, b.final, b.cancelled = true, nil, nil, nil
	return p.submit(ctx, b)
}

// look holds a batch as it is shown against what was submitted and what was shown before, as far as that cannot have been lost.
func (p *haPartner) look(b *haBatch, got client.BatchStatus, at span) {
	if len(got.Rows) != len(b.Rows) {
		p.breaks("%s was submitted with %d rows and has %d", b.BatchReference, len(b.Rows), len(got.Rows))
		return
	}
	lost := p.fleet.losses.mayBeLost(b.seen)
	outcomes, final := make([]string, len(b.Rows)), make([]string, len(b.Rows))
	for i, row := range got.Rows {
		if b.outcomes != nil && b.outcomes[i] != "" && b.outcomes[i] != row.Outcome && !lost {
			p.breaks("%s row %d was %s and is %q, and nothing was lost", b.BatchReference, i, b.outcomes[i], row.Outcome)
		}
		if row.Amount != b.Rows[i].Amount || row.RowReference != b.Rows[i].RowReference {
			p.breaks("%s row %d was submitted as %+v and is %+v", b.BatchReference, i, b.Rows[i], row)
		}
		outcomes[i], final[i] = row.Outcome, cmp.Or(row.CorrectedOutcome, row.Outcome)
	}
	b.outcomes, b.final, b.seen = outcomes, final, at
}

// revoke ends a customer's link.
func (p *haPartner) revoke(ctx context.Context, customer int) error {
	began, err := p.call(ctx, func() error {
		_, err := p.api.RevokeCustomer(ctx, p.site.String(), fmt.Sprint(customer))
		return err
	})
	if err != nil {
		return fmt.Errorf("revoke customer %d: %w", customer, err)
	}
	p.customers[customer].revoked = since(began)
	p.count(func(c *haCounts) { c.Revocations++ })
	return nil
}

// reconcile looks, after each promotion with loss, at everything that was acknowledged while commits were lost.
func (p *haPartner) reconcile(ctx context.Context) error {
	for _, window := range p.fleet.losses.ended(p.windows) {
		p.windows++
		for _, b := range p.batches {
			if b.acked.overlaps(window) || b.seen.overlaps(window) || b.cancelled != nil && b.cancelled.overlaps(window) {
				if err := p.read(ctx, b); err != nil {
					return err
				}
			}
		}
		for i, c := range p.customers {
			if !c.revoked.from.IsZero() && c.revoked.overlaps(window) {
				if err := p.revokeAgain(ctx, i); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// revokeAgain revokes a customer once more whose revocation was lost.
func (p *haPartner) revokeAgain(ctx context.Context, customer int) error {
	var got client.Customer
	_, err := p.call(ctx, func() (err error) {
		got, err = p.api.Customer(ctx, p.site.String(), fmt.Sprint(customer))
		return err
	})
	if err != nil || got.State == "revoked" {
		return err
	}
	p.count(func(c *haCounts) { c.Vanished.Revocations++ })
	return p.revoke(ctx, customer)
}

// audit reads every batch and every revoked customer once more.
func (p *haPartner) audit(ctx context.Context) error {
	for _, b := range p.batches {
		if err := p.read(ctx, b); err != nil {
			return err
		}
	}
	for i, c := range p.customers {
		if c.revoked.from.IsZero() || p.fleet.losses.mayBeLost(c.revoked) {
			continue
		}
		got, err := p.api.Customer(ctx, p.site.String(), fmt.Sprint(i))
		if err != nil || got.State != "revoked" {
			p.breaks("customer %d of Site %d was revoked, and is %q, %v", i, p.number, got.State, err)
		}
	}
	return nil
}

func (p *haPartner) count(how func(*haCounts)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	how(&p.counts)
}

func (p *haPartner) counted() haCounts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// breaks notes a broken promise.
func (p *haPartner) breaks(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = append(p.broken, fmt.Sprintf(format, args...))
}
