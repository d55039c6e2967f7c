package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"partnerbilling/models"
)

// breaches are broken promises by kind, of which the first few are told and all are counted.
type breaches struct {
	order []string
	some  map[string][]string
	all   map[string]int
}

const breachesTold = 10

func (b *breaches) add(kind, format string, args ...any) {
	if b.all == nil {
		b.some, b.all = map[string][]string{}, map[string]int{}
	}
	if b.all[kind] == 0 {
		b.order = append(b.order, kind)
	}
	b.all[kind]++
	if b.all[kind] <= breachesTold {
		b.some[kind] = append(b.some[kind], fmt.Sprintf(format, args...))
	}
}

func (b *breaches) lines() (lines []string) {
	for _, kind := range b.order {
		lines = append(lines, fmt.Sprintf("%d times: %s", b.all[kind], kind))
		for _, one := range b.some[kind] {
			lines = append(lines, "  "+one)
		}
	}
	return lines
}

// railDebit is a success on the gateway's list.
type railDebit struct {
	Key         string
	AgreementID string
	Amount      int64
}

// ledgerEntry is a movement of money in the service's ledger.
type ledgerEntry struct {
	RailKey string
	Amount  int64
}

// books are the gateway's list, by amount, and the ledger, by rail key. Each row and each payment has an amount of its own.
type books struct {
	debits map[int64][]railDebit
	ledger map[string]int64
	known  map[int64]bool // to a partner
	broken breaches
}

func (f *haFleet) readBooks(ctx context.Context) (*books, error) {
	if _, err := f.rail.SandboxDebits(ctx, "", 1); err != nil { // decides what is still to be decided
		return nil, err
	}
	var debits []railDebit
	var undecided int
	var entries []ledgerEntry
	err := errors.Join(
		f.rail.DB().NewRaw("SELECT key, agreement_id, amount FROM sandbox_debits WHERE status = 'succeeded'").Scan(ctx, &debits),
		f.rail.DB().NewRaw("SELECT count(*) FROM sandbox_debits WHERE status = 'undecided'").Scan(ctx, &undecided),
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

// judge holds the books against each other and against the partners' memories.
func (b *books) judge(partners []*haPartner) {
	b.checkKeys()
	b.checkLedger()
	for _, p := range partners {
		b.checkBatches(p)
		b.checkPayments(p)
	}
	b.checkForeign()
}

// checkKeys finds what was debited twice.
func (b *books) checkKeys() {
	for amount, debits := range b.debits {
		if len(debits) > 1 {
			b.broken.add("debited twice", "amount %d: %+v", amount, debits)
		}
	}
}

// checkLedger finds movements that the gateway has not made.
func (b *books) checkLedger() {
	for key, amount := range b.ledger {
		if !slices.ContainsFunc(b.debits[amount], func(d railDebit) bool { return d.Key == key }) {
			b.broken.add("the ledger has a movement that the gateway has not", "%s, amount %d", key, amount)
		}
	}
}

// checkDebit holds a success on the gateway against the key that it must have, and against the ledger.
func (b *books) checkDebit(what, key string, amount int64) {
	for _, d := range b.debits[amount] {
		if d.Key != key {
			b.broken.add("a debit has another key than its row or payment", "%s: %s, not %s", what, d.Key, key)
		}
		if b.ledger[d.Key] != amount {
			b.broken.add("a success is not in the ledger", "%s: %s, amount %d", what, d.Key, b.ledger[d.Key])
		}
	}
}

// checkBatches holds the rows of a partner's batches, as last shown, against the gateway.
func (b *books) checkBatches(p *haPartner) {
	losses := p.fleet.losses
	for _, batch := range p.batches {
		if batch.final == nil {
			b.broken.add("a batch vanished though all promotions are over", "%s", batch.BatchReference)
			continue
		}
		keys := models.NewBatchKey(p.site, batch.BatchReference, 1)
		for i, row := range batch.Rows {
			b.known[row.Amount] = true
			what := fmt.Sprintf("%s row %d, customer %s, amount %d", batch.BatchReference, i, row.CustomerReference, row.Amount)
			outcome, debited := batch.final[i], len(b.debits[row.Amount]) > 0
			switch {
			case outcome == "" || outcome == string(models.OutcomeUnconfirmed):
				b.broken.add("a row is not settled", "%s: %q", what, outcome)
			case (outcome == string(models.OutcomeSucceeded)) != debited:
				b.broken.add("a row is not settled as the gateway says", "%s: %s, %d debits on the gateway", what, outcome, len(b.debits[row.Amount]))
			default:
				b.checkDebit(what, keys.Row(row.RowReference), row.Amount)
			}
			customer := p.customers[customerNumber(row)]
			if debited && b.debits[row.Amount][0].AgreementID != customer.agreement {
				b.broken.add("another customer was debited", "%s: %+v", what, b.debits[row.Amount])
			}
			revoked := customer.revoked
			if debited && !revoked.from.IsZero() && !losses.mayBeLost(revoked) && batch.first.After(revoked.to) {
				b.broken.add("a revoked customer was debited", "%s", what)
			}
		}
	}
}

// checkPayments holds a partner's payments, as last shown, against the gateway.
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
				b.broken.add("a payment has not ended as the gateway says", "%s, %s, amount %d: %s, %+v", payment.id, payment.plan, payment.amount,
					payment.status, b.debits[payment.amount])
			default:
				b.checkDebit(payment.id, "p1_"+payment.id, payment.amount)
			}
		}
	}
}

// checkForeign finds debits of what no partner has asked for.
func (b *books) checkForeign() {
	for amount, debits := range b.debits {
		if !b.known[amount] {
			b.broken.add("the gateway debited what nobody asked for", "%+v", debits)
		}
	}
}
