package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"partnerbilling/models"
)

// breaches collects breaches of the service's promises. Each has a kind, which is a short text. It
// counts all breaches of a kind, and keeps the first ones as examples.
type breaches struct {
	kinds    []string // in order of appearance
	examples map[string][]string
	counts   map[string]int
}

// maxExamples is the maximum number of examples of a kind.
const maxExamples = 10

// add adds a breach of the kind. The format and args describe it.
func (b *breaches) add(kind, format string, args ...any) {
	if b.counts == nil {
		b.examples, b.counts = map[string][]string{}, map[string]int{}
	}
	if b.counts[kind] == 0 {
		b.kinds = append(b.kinds, kind)
	}
	b.counts[kind]++
	if b.counts[kind] <= maxExamples {
		b.examples[kind] = append(b.examples[kind], fmt.Sprintf(format, args...))
	}
}

// lines returns each kind with its count, followed by its examples, as lines of text.
func (b *breaches) lines() (lines []string) {
	for _, kind := range b.kinds {
		lines = append(lines, fmt.Sprintf("%d times: %s", b.counts[kind], kind))
		for _, example := range b.examples[kind] {
			lines = append(lines, "  "+example)
		}
	}
	return lines
}

// railDebit is a successful debit on the gateway's list. Amount is in minor units.
type railDebit struct {
	Key         string
	AgreementID string
	Amount      int64
}

// ledgerEntry is an entry of the service's ledger. Amount is in minor units.
type ledgerEntry struct {
	RailKey string
	Amount  int64
}

// books holds the debits of the gateway and the ledger of the service, to find where they disagree.
// Each row and each payment of a run has a unique amount, which thus identifies its debits.
type books struct {
	debits map[int64][]railDebit // by amount
	ledger map[string]int64      // amounts by rail key
	known  map[int64]bool        // amounts of all rows and payments of partners
	broken breaches
}

// readBooks reads the debits of the gateway and the ledger of the service.
func (f *haFleet) readBooks(ctx context.Context) (*books, error) {
	if _, err := f.railStore.SandboxDebits(ctx, "", 1); err != nil { // decides the undecided debits
		return nil, err
	}
	var debits []railDebit
	var undecided int
	var entries []ledgerEntry
	const succeeded = "SELECT key, agreement_id, amount FROM sandbox_debits WHERE status = 'succeeded'"
	err := errors.Join(
		f.railStore.DB().NewRaw(succeeded).Scan(ctx, &debits),
		f.railStore.DB().NewRaw("SELECT count(*) FROM sandbox_debits WHERE status = 'undecided'").Scan(ctx, &undecided),
		f.store.DB().NewRaw("SELECT rail_key, amount FROM ledger_entries").Scan(ctx, &entries),
	)
	b := &books{debits: map[int64][]railDebit{}, ledger: map[string]int64{}, known: map[int64]bool{}}
	for _, d := range debits {
		b.debits[d.Amount] = append(b.debits[d.Amount], d)
	}
	for _, e := range entries {
		b.ledger[e.RailKey] = e.Amount
	}
	if undecided > 0 {
		b.broken.add("a debit is not decided on the gateway", "%d", undecided)
	}
	return b, err
}

// compare compares the books with each other and with the partners' records. It adds all breaches
// to b.broken.
func (b *books) compare(partners []*haPartner) {
	b.checkDoubleDebits()
	b.checkLedger()
	for _, p := range partners {
		b.checkBatches(p)
		b.checkPayments(p)
	}
	b.checkUnknown()
}

// checkDoubleDebits finds rows and payments that were debited twice, under different keys.
func (b *books) checkDoubleDebits() {
	for amount, debits := range b.debits {
		if len(debits) > 1 {
			b.broken.add("debited twice", "amount %d: %+v", amount, debits)
		}
	}
}

// checkLedger finds ledger entries without a debit on the gateway.
func (b *books) checkLedger() {
	for key, amount := range b.ledger {
		if !slices.ContainsFunc(b.debits[amount], func(d railDebit) bool { return d.Key == key }) {
			b.broken.add("a ledger entry without a debit on the gateway", "%s, amount %d", key, amount)
		}
	}
}

// checkDebit checks that the debits of an amount on the gateway have the key, and that the ledger
// has them. subject describes the row or payment.
func (b *books) checkDebit(subject, key string, amount int64) {
	for _, d := range b.debits[amount] {
		if d.Key != key {
			b.broken.add("a debit with another key than its row or payment", "%s: %s, not %s", subject, d.Key, key)
		}
		if b.ledger[d.Key] != amount {
			b.broken.add("a success is not in the ledger", "%s: %s, amount %d", subject, d.Key, b.ledger[d.Key])
		}
	}
}

// checkBatches compares the rows of a partner's batches, as last read, with the gateway. It also
// finds debits of a wrong customer, and those of customers whose link was revoked before.
func (b *books) checkBatches(p *haPartner) {
	losses := p.fleet.losses
	for _, batch := range p.batches {
		if batch.final == nil {
			b.broken.add("a batch has vanished after all promotions", "%s", batch.BatchReference)
			continue
		}
		keys := models.NewBatchKey(p.site, batch.BatchReference, 1)
		for i, row := range batch.Rows {
			b.known[row.Amount] = true
			subject := fmt.Sprintf("%s row %d, customer %s, amount %d",
				batch.BatchReference, i, row.CustomerReference, row.Amount)
			outcome, debited := batch.final[i], len(b.debits[row.Amount]) > 0
			switch {
			case outcome == "" || outcome == string(models.OutcomeUnconfirmed):
				b.broken.add("a row is not settled", "%s: %q", subject, outcome)
			case (outcome == string(models.OutcomeSucceeded)) != debited:
				b.broken.add("a row disagrees with the gateway", "%s: %s, %d debits on the gateway",
					subject, outcome, len(b.debits[row.Amount]))
			default:
				b.checkDebit(subject, keys.Row(row.RowReference), row.Amount)
			}
			customer := p.customers[customerNumber(row)]
			if debited && b.debits[row.Amount][0].AgreementID != customer.agreement {
				b.broken.add("another customer was debited", "%s: %+v", subject, b.debits[row.Amount])
			}
			revoked := customer.revoked
			if debited && !revoked.from.IsZero() && !losses.mayBeLost(revoked) && batch.first.After(revoked.to) {
				b.broken.add("a revoked customer was debited", "%s", subject)
			}
		}
	}
}

// checkPayments compares a partner's payments, as last read, with the gateway. Debits of lost
// payment intents are no breach; they are counted.
func (b *books) checkPayments(p *haPartner) {
	for _, t := range p.tills {
		for _, payment := range t.made {
			b.known[payment.amount] = true
			debited := len(b.debits[payment.amount]) > 0
			settled := payment.status == string(models.TransactionSettled)
			switch {
			case payment.vanished && debited:
				p.count(func(c *haCounts) { c.Vanished.Debits++ })
			case payment.vanished:
			case settled != debited:
				b.broken.add("a payment disagrees with the gateway", "%s, %s, amount %d: %s, %+v",
					payment.id, payment.plan, payment.amount, payment.status, b.debits[payment.amount])
			default:
				b.checkDebit(payment.id, "p1_"+payment.id, payment.amount)
			}
		}
	}
}

// checkUnknown finds debits that belong to no row or payment of a partner, nor to a probe.
func (b *books) checkUnknown() {
	for amount, debits := range b.debits {
		if !b.known[amount] && amount < firstProbeAmount {
			b.broken.add("a debit without a row or payment", "%+v", debits)
		}
	}
}
