package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"partnerbilling/api/client"
	"partnerbilling/models"
)

// chaosPartner is a partner's program for one Site. It submits batches at a steady pace, and does beside that what programs do
// that lose answers or change their minds: it submits batches again, submits others under a known reference, cancels, and reads.
// It remembers everything that it was told.
type chaosPartner struct {
	name   string
	api    *client.Client
	site   string
	random *rand.Rand
	rows   int           // to submit
	within time.Duration // in which to do that, if the service keeps up

	mu      sync.Mutex
	sent    []*sentBatch
	counts  partnerCounts
	broken  []string // promises, as the partner sees it
	settled int      // batches that were seen settled
}

// partnerCounts count what partners did, and were answered.
type partnerCounts struct {
	Rows          int `json:"rows"`
	Batches       int `json:"batches"`
	Resubmissions int `json:"resubmissions"`
	Conflicts     int `json:"conflicts"`
	Cancellations int `json:"cancellations"`
	Reads         int `json:"reads"`
}

func (c *partnerCounts) add(o partnerCounts) {
	c.Rows, c.Batches, c.Resubmissions = c.Rows+o.Rows, c.Batches+o.Batches, c.Resubmissions+o.Resubmissions
	c.Conflicts, c.Cancellations, c.Reads = c.Conflicts+o.Conflicts, c.Cancellations+o.Cancellations, c.Reads+o.Reads
}

// sentBatch is a batch that was answered with 202.
type sentBatch struct {
	client.Batch
	receipt   client.Receipt
	outcomes  []string // by row, as first seen settled; nil if never read
	cancelled bool     // the partner asked for that
	settled   bool     // as last seen
}

// chaosCustomers are the customers of each Site, a few of whom do not simply pay.
const chaosCustomers = 200

// chaosBehaviour is how a customer behaves, and how the debit then ends.
func chaosBehaviour(customer int) (models.Behaviour, string) {
	odd := map[int]int{7: 3, 27: 4, 47: 5, 67: 6, 87: 7, 107: 8, 127: 9, 147: 9, 167: 9} // into behaviours
	b := behaviours[odd[customer]]
	return models.Behaviour(b.behaviour), b.outcome
}

// outstandingBatches is how many batches a partner has open at a time.
const outstandingBatches = 16

// run does it all. It ends when all is submitted, or with ctx.
func (p *chaosPartner) run(ctx context.Context) error {
	began := time.Now()
	for p.counts.Rows < p.rows {
		if err := p.submit(ctx, p.next()); err != nil {
			return err
		}
		if err := p.aside(ctx); err != nil {
			return err
		}
		due := began.Add(time.Duration(float64(p.within) * float64(p.counts.Rows) / float64(p.rows)))
		if !sleep(ctx, time.Until(due)) {
			return ctx.Err()
		}
		if err := p.hold(ctx); err != nil {
			return err
		}
	}
	return nil
}

// next is a new batch; most are large.
func (p *chaosPartner) next() client.Batch {
	n := models.MaxBatchRows
	if p.random.IntN(4) == 0 {
		n = 1 + p.random.IntN(models.MaxBatchRows)
	}
	n = min(n, p.rows-p.counts.Rows)
	batch := client.Batch{BatchReference: fmt.Sprintf("%s/%d é", p.name, len(p.sent)), Rows: make([]client.Row, n)}
	for i := range batch.Rows {
		batch.Rows[i] = client.Row{
			CustomerReference: fmt.Sprint(p.random.IntN(chaosCustomers)), RowReference: fmt.Sprint(i), Amount: 1 + p.random.Int64N(100_000),
		}
	}
	return batch
}

// insistent repeats a call that fails because something is down, as it must sometime succeed; a refusal ends it.
func insistent(ctx context.Context, call func() error) error {
	for {
		err := call()
		var refused *client.Error
		if err == nil || errors.As(err, &refused) && refused.Status < 500 && refused.Status != 429 {
			return err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

func (p *chaosPartner) submit(ctx context.Context, batch client.Batch) error {
	var receipt client.Receipt
	err := insistent(ctx, func() (err error) {
		receipt, err = p.api.SubmitBatch(ctx, p.site, batch)
		return err
	})
	if err != nil {
		return fmt.Errorf("submit %s: %w", batch.BatchReference, err)
	}
	p.checkReceipt(batch, receipt)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = append(p.sent, &sentBatch{Batch: batch, receipt: receipt})
	p.counts.Batches++
	p.counts.Rows += len(batch.Rows)
	return nil
}

// did counts what the partner did.
func (p *chaosPartner) did(count *int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*count++
}

func (p *chaosPartner) checkReceipt(batch client.Batch, receipt client.Receipt) {
	var total int64
	for _, r := range batch.Rows {
		total += r.Amount
	}
	if receipt.BatchReference != batch.BatchReference || receipt.RowCount != len(batch.Rows) || receipt.TotalAmount != total {
		p.breaks("%s: %d rows of %d in all, and the receipt says %+v", batch.BatchReference, len(batch.Rows), total, receipt)
	}
}

// breaks notes a broken promise.
func (p *chaosPartner) breaks(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = append(p.broken, fmt.Sprintf(format, args...))
}

// aside does what is drawn, with one of the latest batches.
func (p *chaosPartner) aside(ctx context.Context) error {
	latest := p.sent[max(0, len(p.sent)-outstandingBatches):]
	b := latest[p.random.IntN(len(latest))]
	switch n := p.random.IntN(20); {
	case n < 5:
		return p.resubmit(ctx, b)
	case n < 6:
		return p.contradict(ctx, b)
	case n < 8:
		return p.cancel(ctx, b)
	case n < 10:
		return p.read(ctx, b)
	default:
		return nil
	}
}

// resubmit sends the same batch again: the answer is the same receipt.
func (p *chaosPartner) resubmit(ctx context.Context, b *sentBatch) error {
	var again client.Receipt
	err := insistent(ctx, func() (err error) {
		again, err = p.api.SubmitBatch(ctx, p.site, b.Batch)
		return err
	})
	if err != nil {
		return fmt.Errorf("resubmit %s: %w", b.BatchReference, err)
	}
	want := b.receipt
	want.Replayed = true
	if again != want {
		p.breaks("%s: the first receipt was %+v, then it was %+v", b.BatchReference, b.receipt, again)
	}
	p.did(&p.counts.Resubmissions)
	return nil
}

// contradict sends another batch under the same reference, which is refused.
func (p *chaosPartner) contradict(ctx context.Context, b *sentBatch) error {
	other := b.Batch
	other.Rows = append([]client.Row(nil), other.Rows...)
	other.Rows[0].Amount++
	err := insistent(ctx, func() error {
		_, err := p.api.SubmitBatch(ctx, p.site, other)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !client.Has(err, "batches:batch-reference-conflict"):
		p.breaks("%s: another batch under its reference was answered with %v", b.BatchReference, err)
	}
	p.did(&p.counts.Conflicts)
	return nil
}

func (p *chaosPartner) cancel(ctx context.Context, b *sentBatch) error {
	b.cancelled = true
	err := insistent(ctx, func() error {
		got, err := p.api.CancelBatch(ctx, p.site, b.BatchReference)
		if err == nil {
			p.look(b, got)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cancel %s: %w", b.BatchReference, err)
	}
	p.did(&p.counts.Cancellations)
	return nil
}

func (p *chaosPartner) read(ctx context.Context, b *sentBatch) error {
	var got client.BatchStatus
	err := insistent(ctx, func() (err error) {
		got, err = p.api.Batch(ctx, p.site, b.BatchReference)
		return err
	})
	if err != nil {
		return fmt.Errorf("read %s, which was answered with 202: %w", b.BatchReference, err)
	}
	p.did(&p.counts.Reads)
	p.look(b, got)
	return nil
}

// hold waits while too much is open, for the oldest.
func (p *chaosPartner) hold(ctx context.Context) error {
	for p.settled < len(p.sent)-outstandingBatches {
		b := p.sent[p.settled]
		if !b.settled {
			got, err := p.await(ctx, b)
			if err != nil {
				return err
			}
			p.look(b, got)
		}
		p.settled++
	}
	return nil
}

func (p *chaosPartner) await(ctx context.Context, b *sentBatch) (got client.BatchStatus, err error) {
	err = insistent(ctx, func() (err error) {
		got, err = p.api.AwaitBatch(ctx, p.site, b.BatchReference)
		return err
	})
	if err != nil {
		err = fmt.Errorf("await %s, which was answered with 202: %w", b.BatchReference, err)
	}
	return got, err
}

// look holds a batch as it is shown against what was submitted, what was shown before, and how its customers behave.
func (p *chaosPartner) look(b *sentBatch, got client.BatchStatus) {
	if len(got.Rows) != len(b.Rows) || got.TotalAmount != b.receipt.TotalAmount || got.SettleBy != b.receipt.SettleBy {
		p.breaks("%s was submitted with %d rows and has %d", b.BatchReference, len(b.Rows), len(got.Rows))
		return
	}
	if b.outcomes == nil {
		b.outcomes = make([]string, len(b.Rows))
	}
	open := 0
	for i, row := range got.Rows {
		was := b.outcomes[i]
		switch {
		case row.RowReference != b.Rows[i].RowReference || row.Amount != b.Rows[i].Amount:
			p.breaks("%s row %d was submitted as %+v and is %+v", b.BatchReference, i, b.Rows[i], row)
		case was != "" && was != row.Outcome:
			p.breaks("%s row %d was %s and is %q", b.BatchReference, i, was, row.Outcome)
		case row.State == "settled" && !b.plausible(i, row):
			p.breaks("%s row %d of customer %s ended as %s, corrected %q", b.BatchReference, i, row.CustomerReference, row.Outcome, row.CorrectedOutcome)
		}
		if row.State != "settled" {
			open++
		}
		b.outcomes[i] = row.Outcome
	}
	if b.settled = got.State == "settled"; b.settled != (open == 0) {
		p.breaks("%s is %s with %d open rows", b.BatchReference, got.State, open)
	}
}

// plausible reports whether a row may have ended so: as its customer behaves, cancelled if the partner asked for it, or by the
// deadline, which clock steps bring.
func (b *sentBatch) plausible(i int, row client.RowStatus) bool {
	var customer int
	if _, err := fmt.Sscan(b.Rows[i].CustomerReference, &customer); err != nil {
		return false
	}
	_, want := chaosBehaviour(customer)
	may := func(outcome string) bool {
		return outcome == want || outcome == "timedOut" || outcome == "cancelled" && b.cancelled
	}
	if row.Outcome == "unconfirmed" {
		return row.CorrectedOutcome == "" || may(row.CorrectedOutcome)
	}
	return may(row.Outcome)
}

// audit reads every batch once more: each is there, settled, and as it was.
func (p *chaosPartner) audit(ctx context.Context) error {
	for _, b := range p.sent {
		if err := p.read(ctx, b); err != nil {
			if ctx.Err() != nil {
				return err
			}
			p.breaks("%v", err)
			continue
		}
		if !b.settled {
			p.breaks("%s, which was answered with 202, is not settled", b.BatchReference)
		}
	}
	return nil
}

// progress is what was submitted so far.
func (p *chaosPartner) progress() partnerCounts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}
