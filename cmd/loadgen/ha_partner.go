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

// haPartner is the program of a partner for one Site in a failover run. It records all answers with
// their times. After each promotion with loss, it looks for lost batches and revocations. It
// submits lost batches again under the same reference, and revokes the links again. It does not
// look for cancellations that were lost while their batch survived.
//
// No two rows of a run have the same amount. The amount of a debit on the gateway's list thus shows
// the debit's row, independently of the rail key.
type haPartner struct {
	number    int // of the Site in the run, from 0
	fleet     *haFleet
	api       *client.Client
	site      models.SiteID
	random    *rand.Rand
	rows      int // number of rows to submit
	customers []*haCustomer
	tills     []*till

	batches   []*haBatch
	made      int // number of batches made so far
	submitted int // number of their rows
	windows   int // number of windows of loss that reconcile has handled

	mu     sync.Mutex
	counts haCounts
	broken []string
}

// haBatch is a submitted batch with the partner's records about it.
type haBatch struct {
	client.Batch
	first     time.Time // of the first submission
	acked     span      // of the last submission with 202
	cancelled *span     // of the last cancellation with 200; may be nil
	outcomes  []string  // as last read; nil if never read
	final     []string  // like outcomes, with corrections applied
	seen      span      // of the last read
	vanished  bool      // at least once
}

// haCounts counts what partners have submitted and changed. Vanished are the changes of these that
// were acknowledged and then lost.
type haCounts struct {
	Rows          int `json:"rows"`
	Batches       int `json:"batches"`
	Payments      int `json:"payments"`
	Resubmissions int `json:"resubmissions"`
	Cancellations int `json:"cancellations"`
	Revocations   int `json:"revocations"`

	Vanished vanishedCounts `json:"vanished"`
}

// vanishedCounts counts changes that were acknowledged and lost. Debits are those of lost payment
// intents: only the gateway has them.
type vanishedCounts struct {
	Batches       int `json:"batches"`
	Cancellations int `json:"cancellations"`
	Revocations   int `json:"revocations"`
	Intents       int `json:"intents"`
	Payments      int `json:"payments"`
	Debits        int `json:"debits"`
}

// add adds the counts of o.
func (c *haCounts) add(o haCounts) {
	c.Rows += o.Rows
	c.Batches += o.Batches
	c.Payments += o.Payments
	c.Resubmissions += o.Resubmissions
	c.Cancellations += o.Cancellations
	c.Revocations += o.Revocations
	v, w := &c.Vanished, o.Vanished
	v.Batches += w.Batches
	v.Cancellations += w.Cancellations
	v.Revocations += w.Revocations
	v.Intents += w.Intents
	v.Payments += w.Payments
	v.Debits += w.Debits
}

const (
	// rowAmounts is the number of amounts that are reserved for the rows of each Site.
	rowAmounts = 10_000_000
	// haBatchRows is the maximum number of rows in a batch. Batches are small, so that there are
	// many acknowledgements.
	haBatchRows = 100
)

// run submits batches at the pace of the promotions, with random calls in between. It submits
// vanished batches again. It returns when all promotions are over and all rows are submitted.
func (p *haPartner) run(ctx context.Context) error {
	for {
		over := p.fleet.pace.isFinished()
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

// next returns a new batch with a random number of rows.
func (p *haPartner) next() *haBatch {
	return p.newBatch(min(1+p.random.IntN(haBatchRows), p.rows-p.submitted))
}

// newBatch returns a new batch of n rows for random customers, including revoked ones.
func (p *haPartner) newBatch(n int) *haBatch {
	p.made++
	reference := fmt.Sprintf("%d/%d é", p.number, p.made)
	b := &haBatch{Batch: client.Batch{BatchReference: reference, Rows: make([]client.Row, n)}}
	for i := range b.Rows {
		p.submitted++
		b.Rows[i] = client.Row{
			CustomerReference: fmt.Sprint(p.random.IntN(len(p.customers))), RowReference: fmt.Sprint(i),
			Amount: int64(p.number*rowAmounts + p.submitted),
		}
	}
	return b
}

// submitNext submits a new batch, and then makes a random call.
func (p *haPartner) submitNext(ctx context.Context) error {
	b := p.next()
	b.first = time.Now()
	if err := p.submit(ctx, b); err != nil {
		return err
	}
	p.batches = append(p.batches, b)
	p.count(func(c *haCounts) { c.Batches++; c.Rows += len(b.Rows) })
	return p.actAtRandom(ctx)
}

// submit submits a batch until it is acknowledged. After a 503 or no answer, it repeats the same
// request.
func (p *haPartner) submit(ctx context.Context, b *haBatch) error {
	var receipt client.Receipt
	var began time.Time
	err := retryUnavailable(ctx, func() (err error) {
		began = time.Now()
		receipt, err = p.api.SubmitBatch(ctx, p.site.String(), b.Batch)
		return err
	})
	if err != nil {
		return fmt.Errorf("submit %s: %w", b.BatchReference, err)
	}
	b.acked = since(began)
	if receipt.BatchReference != b.BatchReference || receipt.RowCount != len(b.Rows) {
		p.breach("%s: the receipt of %d rows is %+v", b.BatchReference, len(b.Rows), receipt)
	}
	return nil
}

// actAtRandom makes a random call about one of the latest batches or a customer, or none.
func (p *haPartner) actAtRandom(ctx context.Context) error {
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
		return p.revoke(ctx, p.customers[p.random.IntN(len(p.customers))])
	default:
		return nil
	}
}

// cancel cancels a batch and checks the answer. It submits the batch again if it has vanished.
func (p *haPartner) cancel(ctx context.Context, b *haBatch) error {
	var got client.BatchStatus
	began, err := p.call(ctx, func() (err error) {
		got, err = p.api.CancelBatch(ctx, p.site.String(), b.BatchReference)
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
	p.check(b, got, answered)
	return nil
}

// read reads and checks a batch, and submits it again if it has vanished.
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
	p.check(b, got, since(began))
	return nil
}

// call repeats a call until it succeeds or is refused, and returns the time when the last attempt
// began.
func (p *haPartner) call(ctx context.Context, do func() error) (began time.Time, err error) {
	err = retryUnavailable(ctx, func() error {
		began = time.Now()
		return do()
	})
	return began, err
}

// customerNumber returns the index of a row's customer in the Site.
func customerNumber(row client.Row) int {
	n, _ := strconv.Atoi(row.CustomerReference)
	return n
}

// isMissing reports whether the service answered 404.
func isMissing(err error) bool {
	var refused *client.Error
	return errors.As(err, &refused) && refused.Status == 404
}

// missing submits a vanished batch again. It records a breach unless a promotion may have lost the
// batch.
func (p *haPartner) missing(ctx context.Context, b *haBatch) error {
	if !p.fleet.losses.mayBeLost(b.acked) {
		p.breach("the acknowledged batch %s vanished without a loss", b.BatchReference)
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

// check compares an answer about a batch with the submission, and records differences as breaches.
// It also compares the answer with the previous one, unless a promotion may have lost what that
// showed. at is the span of the read.
//
// A cancellation ends pending rows at once, unless the primary PostgreSQL has been replaced: the
// service then closes them on the rail, where a debit may come first.
func (p *haPartner) check(b *haBatch, got client.BatchStatus, at span) {
	if len(got.Rows) != len(b.Rows) {
		p.breach("%s was submitted with %d rows and has %d", b.BatchReference, len(b.Rows), len(got.Rows))
		return
	}
	lost := p.fleet.losses.mayBeLost(b.seen)
	outcomes, final := make([]string, len(b.Rows)), make([]string, len(b.Rows))
	for i, row := range got.Rows {
		if b.outcomes != nil && b.outcomes[i] != "" && b.outcomes[i] != row.Outcome && !lost {
			p.breach("%s row %d was %s and is %q, without a loss", b.BatchReference, i, b.outcomes[i], row.Outcome)
		}
		if !shows(row, b.Rows[i]) {
			p.breach("%s row %d was submitted as %+v and is %+v", b.BatchReference, i, b.Rows[i], row)
		}
		if row.State == "pending" && b.cancelled != nil && p.fleet.plan.Redis != "" {
			p.breach("%s row %d is pending after the cancellation", b.BatchReference, i)
		}
		outcomes[i], final[i] = row.Outcome, cmp.Or(row.CorrectedOutcome, row.Outcome)
	}
	b.outcomes, b.final, b.seen = outcomes, final, at
}

// revoke revokes a customer's link.
func (p *haPartner) revoke(ctx context.Context, customer *haCustomer) error {
	began, err := p.call(ctx, func() error {
		_, err := p.api.RevokeCustomer(ctx, p.site.String(), customer.reference)
		return err
	})
	if err != nil {
		return fmt.Errorf("revoke customer %s: %w", customer.reference, err)
	}
	customer.revoked = since(began)
	p.count(func(c *haCounts) { c.Revocations++ })
	return nil
}

// reconcile reads again, after each promotion with loss, the batches and revocations with an
// acknowledgement within the window of the loss. It submits lost batches and makes lost revocations
// again.
func (p *haPartner) reconcile(ctx context.Context) error {
	for _, window := range p.fleet.losses.ended(p.windows) {
		p.windows++
		for _, b := range p.batches {
			mayBeLost := b.acked.overlaps(window) || b.seen.overlaps(window)
			if mayBeLost || b.cancelled != nil && b.cancelled.overlaps(window) {
				if err := p.read(ctx, b); err != nil {
					return err
				}
			}
		}
		for _, c := range p.customers {
			if !c.revoked.from.IsZero() && c.revoked.overlaps(window) {
				if err := p.revokeAgain(ctx, c); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// revokeAgain revokes a customer again if the revocation was lost.
func (p *haPartner) revokeAgain(ctx context.Context, customer *haCustomer) error {
	var got client.CustomerLink
	_, err := p.call(ctx, func() (err error) {
		got, err = p.api.Customer(ctx, p.site.String(), customer.reference)
		return err
	})
	if err != nil || got.State == "revoked" {
		return err
	}
	p.count(func(c *haCounts) { c.Vanished.Revocations++ })
	return p.revoke(ctx, customer)
}

// audit reads and checks every batch once more, and every customer whose revocation cannot be lost.
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
			p.breach("customer %d of Site %d was revoked, and is %q, %v", i, p.number, got.State, err)
		}
	}
	return nil
}

// count changes the counts under the lock.
func (p *haPartner) count(change func(*haCounts)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.counts)
}

// snapshot returns the counts so far.
func (p *haPartner) snapshot() haCounts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// breach records a breach of the API's contract.
func (p *haPartner) breach(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = append(p.broken, fmt.Sprintf(format, args...))
}
