package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"partnerbilling/api/client"
	"partnerbilling/models"
)

// chaosPartner is the program of a partner for one Site in a chaos run. It submits batches at a
// steady pace. At random, it also resubmits batches, submits different ones under a known
// reference, cancels and reads. It records the answers, and checks each against the earlier ones.
type chaosPartner struct {
	name   string
	api    *client.Client
	site   string
	random *rand.Rand
	rows   int           // number of rows to submit
	within time.Duration // time in which to submit them, if the service keeps up

	mu      sync.Mutex
	sent    []*sentBatch
	counts  partnerCounts
	broken  []string // breaches of the contract
	settled int      // length of the beginning of sent that is known to be settled
}

// partnerCounts counts the rows and batches that partners have submitted, and their other calls.
// Conflicts are different batches under a known reference.
type partnerCounts struct {
	Rows          int `json:"rows"`
	Batches       int `json:"batches"`
	Resubmissions int `json:"resubmissions"`
	Conflicts     int `json:"conflicts"`
	Cancellations int `json:"cancellations"`
	Reads         int `json:"reads"`
}

// add adds the counts of o.
func (c *partnerCounts) add(o partnerCounts) {
	c.Rows, c.Batches, c.Resubmissions = c.Rows+o.Rows, c.Batches+o.Batches, c.Resubmissions+o.Resubmissions
	c.Conflicts, c.Cancellations, c.Reads = c.Conflicts+o.Conflicts, c.Cancellations+o.Cancellations, c.Reads+o.Reads
}

// sentBatch is a batch that the service has acknowledged with 202.
type sentBatch struct {
	client.Batch
	receipt   client.Receipt
	outcomes  []string // by row, as last read; nil if never read
	cancelled bool     // by the partner
	settled   bool     // as last read
}

// chaosCustomers is the number of customers of each Site, with the references 0, 1, …. The debits
// of a few do not simply succeed.
const chaosCustomers = 200

// chaosBehaviours maps numbers of customers to their behaviours. All other customers pay.
var chaosBehaviours = map[int]models.Behaviour{
	7:   models.BehaviourInsufficientFunds,
	27:  models.BehaviourAccountUnavailable,
	47:  models.BehaviourLimitExceeded,
	67:  models.BehaviourDeclines,
	87:  models.BehaviourSlow,
	107: models.BehaviourBankDown,
	127: models.BehaviourAnswerLost,
	147: models.BehaviourAnswerLost,
	167: models.BehaviourAnswerLost,
}

// chaosBehaviour returns the behaviour of the customer with the number.
func chaosBehaviour(customer int) models.Behaviour {
	return cmp.Or(chaosBehaviours[customer], models.BehaviourPays)
}

// outstandingBatches is the maximum number of batches that a partner has open.
const outstandingBatches = 16

// run submits all rows, with random calls in between. It returns when the rows are submitted or ctx
// ends.
func (p *chaosPartner) run(ctx context.Context) error {
	began := time.Now()
	for p.counts.Rows < p.rows {
		if err := p.submit(ctx, p.next()); err != nil {
			return err
		}
		if err := p.actAtRandom(ctx); err != nil {
			return err
		}
		due := began.Add(time.Duration(float64(p.within) * float64(p.counts.Rows) / float64(p.rows)))
		if !sleep(ctx, time.Until(due)) {
			return ctx.Err()
		}
		if err := p.awaitOldest(ctx); err != nil {
			return err
		}
	}
	return nil
}

// next returns a new batch with random customers and amounts. Three quarters of the batches have
// the maximum number of rows.
func (p *chaosPartner) next() client.Batch {
	n := models.MaxBatchRows
	if p.random.IntN(4) == 0 {
		n = 1 + p.random.IntN(models.MaxBatchRows)
	}
	n = min(n, p.rows-p.counts.Rows)
	batch := client.Batch{BatchReference: fmt.Sprintf("%s/%d é", p.name, len(p.sent)), Rows: make([]client.Row, n)}
	for i := range batch.Rows {
		batch.Rows[i] = client.Row{
			CustomerReference: fmt.Sprint(p.random.IntN(chaosCustomers)), RowReference: fmt.Sprint(i),
			Amount: 1 + p.random.Int64N(100_000),
		}
	}
	return batch
}

// retryUnavailable repeats a call until it succeeds, the service refuses it, or ctx ends. It
// retries errors without an answer, the statuses 429 and 5xx, and the 409 that isInFlight
// recognises.
func retryUnavailable(ctx context.Context, call func() error) error {
	for {
		err := call()
		var refused *client.Error
		if err == nil || errors.As(err, &refused) && refused.Status < 500 && refused.Status != 429 &&
			!isInFlight(refused) {
			return err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// isInFlight reports whether the service refuses a repeated request because the first one with its
// Idempotency-Key is still running. After a failover, the database transaction of the first request
// may outlive the answer 503.
func isInFlight(refused *client.Error) bool {
	return refused.Status == http.StatusConflict &&
		strings.Contains(refused.Error(), "Idempotency-Key is still running")
}

// submit submits a batch and records it as sent.
func (p *chaosPartner) submit(ctx context.Context, batch client.Batch) error {
	var receipt client.Receipt
	err := retryUnavailable(ctx, func() (err error) {
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

// increment increments one of the counts.
func (p *chaosPartner) increment(count *int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*count++
}

// checkReceipt records a breach unless the receipt agrees with the batch.
func (p *chaosPartner) checkReceipt(batch client.Batch, receipt client.Receipt) {
	var total int64
	for _, r := range batch.Rows {
		total += r.Amount
	}
	if receipt.BatchReference != batch.BatchReference || receipt.RowCount != len(batch.Rows) ||
		receipt.TotalAmount != total {
		p.breach("%s: the receipt of %d rows with a total of %d is %+v",
			batch.BatchReference, len(batch.Rows), total, receipt)
	}
}

// breach records a breach of the API's contract.
func (p *chaosPartner) breach(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = append(p.broken, fmt.Sprintf(format, args...))
}

// actAtRandom makes a random call about one of the latest batches, or none.
func (p *chaosPartner) actAtRandom(ctx context.Context) error {
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

// resubmit submits a batch again. The answer must be the first receipt, marked as replayed.
func (p *chaosPartner) resubmit(ctx context.Context, b *sentBatch) error {
	var again client.Receipt
	err := retryUnavailable(ctx, func() (err error) {
		again, err = p.api.SubmitBatch(ctx, p.site, b.Batch)
		return err
	})
	if err != nil {
		return fmt.Errorf("resubmit %s: %w", b.BatchReference, err)
	}
	want := b.receipt
	want.Replayed, want.TraceID = true, again.TraceID // each answer has its own trace id
	if again != want {
		p.breach("%s: the first receipt was %+v, the second %+v", b.BatchReference, b.receipt, again)
	}
	p.increment(&p.counts.Resubmissions)
	return nil
}

// contradict submits a different batch under the reference of b. The service must refuse it.
func (p *chaosPartner) contradict(ctx context.Context, b *sentBatch) error {
	other := b.Batch
	other.Rows = append([]client.Row(nil), other.Rows...)
	other.Rows[0].Amount++
	err := retryUnavailable(ctx, func() error {
		_, err := p.api.SubmitBatch(ctx, p.site, other)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !client.Has(err, "batches:batch-reference-conflict"):
		p.breach("%s: the answer to a different batch under its reference is %v", b.BatchReference, err)
	}
	p.increment(&p.counts.Conflicts)
	return nil
}

// cancel cancels a batch and checks the answer.
func (p *chaosPartner) cancel(ctx context.Context, b *sentBatch) error {
	b.cancelled = true
	err := retryUnavailable(ctx, func() error {
		got, err := p.api.CancelBatch(ctx, p.site, b.BatchReference)
		if err == nil {
			p.check(b, got)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cancel %s: %w", b.BatchReference, err)
	}
	p.increment(&p.counts.Cancellations)
	return nil
}

// read reads a batch and checks the answer.
func (p *chaosPartner) read(ctx context.Context, b *sentBatch) error {
	var got client.BatchStatus
	err := retryUnavailable(ctx, func() (err error) {
		got, err = p.api.Batch(ctx, p.site, b.BatchReference)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the acknowledged batch %s: %w", b.BatchReference, err)
	}
	p.increment(&p.counts.Reads)
	p.check(b, got)
	return nil
}

// awaitOldest waits until the oldest batches settle, so that at most outstandingBatches stay open.
func (p *chaosPartner) awaitOldest(ctx context.Context) error {
	for p.settled < len(p.sent)-outstandingBatches {
		b := p.sent[p.settled]
		if !b.settled {
			got, err := p.await(ctx, b)
			if err != nil {
				return err
			}
			p.check(b, got)
		}
		p.settled++
	}
	return nil
}

// await waits until a batch is settled, and returns its status.
func (p *chaosPartner) await(ctx context.Context, b *sentBatch) (got client.BatchStatus, err error) {
	err = retryUnavailable(ctx, func() (err error) {
		got, err = p.api.AwaitBatch(ctx, p.site, b.BatchReference)
		return err
	})
	if err != nil {
		err = fmt.Errorf("await the acknowledged batch %s: %w", b.BatchReference, err)
	}
	return got, err
}

// check compares an answer about a batch with the submission, with earlier answers, and with the
// behaviour of the batch's customers. It records every difference as a breach.
func (p *chaosPartner) check(b *sentBatch, got client.BatchStatus) {
	if len(got.Rows) != len(b.Rows) || got.TotalAmount != b.receipt.TotalAmount || got.SettleBy != b.receipt.SettleBy {
		p.breach("%s was submitted with %d rows and has %d", b.BatchReference, len(b.Rows), len(got.Rows))
		return
	}
	if b.outcomes == nil {
		b.outcomes = make([]string, len(b.Rows))
	}
	open := 0
	for i, row := range got.Rows {
		before := b.outcomes[i]
		switch {
		case !shows(row, b.Rows[i]):
			p.breach("%s row %d was submitted as %+v and is %+v", b.BatchReference, i, b.Rows[i], row)
		case before != "" && before != row.Outcome:
			p.breach("%s row %d was %s and is %q", b.BatchReference, i, before, row.Outcome)
		case row.State == "settled" && !b.plausible(i, row):
			p.breach("%s row %d of customer %s is %s, corrected to %q",
				b.BatchReference, i, row.CustomerReference, row.Outcome, row.CorrectedOutcome)
		}
		if row.State != "settled" {
			open++
		}
		b.outcomes[i] = row.Outcome
	}
	if b.settled = got.State == "settled"; b.settled != (open == 0) {
		p.breach("%s is %s with %d open rows", b.BatchReference, got.State, open)
	}
}

// shows reports whether a row in an answer is the submitted row.
func shows(row client.RowStatus, submitted client.Row) bool {
	return submitted == client.Row{
		CustomerReference: row.CustomerReference, RowReference: row.RowReference, Amount: row.Amount,
	}
}

// plausible reports whether the outcome of the settled row i is possible. Possible are the outcome
// of the customer's behaviour, cancelled after a cancellation, and timed out, since clock steps may
// cross the deadline. An unconfirmed row must have no correction or a possible one.
func (b *sentBatch) plausible(i int, row client.RowStatus) bool {
	var customer int
	if _, err := fmt.Sscan(b.Rows[i].CustomerReference, &customer); err != nil {
		return false
	}
	want := debitOutcomes[chaosBehaviour(customer)]
	isPossible := func(outcome string) bool {
		return outcome == want || outcome == "timedOut" || outcome == "cancelled" && b.cancelled
	}
	if row.Outcome == "unconfirmed" {
		return row.CorrectedOutcome == "" || isPossible(row.CorrectedOutcome)
	}
	return isPossible(row.Outcome)
}

// audit reads every batch once more. Each must exist, be settled, and agree with earlier answers.
func (p *chaosPartner) audit(ctx context.Context) error {
	for _, b := range p.sent {
		if err := p.read(ctx, b); err != nil {
			if ctx.Err() != nil {
				return err
			}
			p.breach("%v", err)
			continue
		}
		if !b.settled {
			p.breach("the acknowledged batch %s is not settled", b.BatchReference)
		}
	}
	return nil
}

// progress returns the counts so far.
func (p *chaosPartner) progress() partnerCounts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}
