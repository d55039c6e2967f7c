package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"partnerbilling/api/client"
)

// till is a point of sale of a Site in a failover run, together with the customers who pay there.
// It creates payment intents one after another, and completes each according to its plan. If an
// acknowledged payment is lost, the plan changes: see afterLoss.
type till struct {
	partner  *haPartner
	app      *customerApp // pays
	first    int          // serial number, in the Site, of the till's first payment
	payments int          // number of payments to make
	windows  int          // number of windows of loss that reconcile has handled
	made     []*haPayment
	advanced int // number of made payments that have been completed, from the first on
}

// haPayment is a payment intent with its payment, and the till's records about them.
type haPayment struct {
	amount   int64 // in minor units; unique in a run
	plan     string
	customer *haCustomer
	id, code string // of the payment intent; the code is what the customer scans

	created span   // of the creation
	paid    *span  // of the last payment with 202; may be nil
	final   *span  // of the last read that showed the final status; may be nil
	status  string // of the transaction, as last read

	vanished bool // the payment intent is lost
}

const (
	// tillsPerSite is the number of tills of each Site.
	tillsPerSite = 2
	// unpaidIntents is the number of a till's payment intents that wait to be paid. Because of the
	// wait, a promotion may lose a payment and keep its older payment intent.
	unpaidIntents = 4
	// firstPaymentAmount is larger than the amounts of all rows, in minor units.
	firstPaymentAmount = 1_000_000_000
)

// The plans for a payment intent: the customer pays, the partner cancels, or the intent expires
// unpaid.
const (
	planPay    = "pay"
	planCancel = "cancel"
	planExpire = "expire"
)

// addTills adds the tills of the Site, and divides the number of payments among them.
func (p *haPartner) addTills(app *customerApp, payments int) {
	first := 0
	for i := range tillsPerSite {
		n := payments*(i+1)/tillsPerSite - payments*i/tillsPerSite
		p.tills = append(p.tills, &till{partner: p, app: app, first: first, payments: n})
		first += n
	}
}

// run creates and completes payment intents at the pace of the promotions. It returns when all
// promotions are over and all payments are made.
func (t *till) run(ctx context.Context) error {
	pace := t.partner.fleet.pace
	for {
		over := pace.isFinished()
		if err := t.reconcile(ctx); err != nil {
			return err
		}
		switch {
		case t.advanced < len(t.made)-unpaidIntents || t.advanced < len(t.made) && over:
			if err := t.advance(ctx, t.made[t.advanced]); err != nil {
				return err
			}
			t.advanced++
		case len(t.made) < pace.due(t.payments):
			if err := t.makeNext(ctx); err != nil {
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

// makeNext creates the payment intent of the next payment.
func (t *till) makeNext(ctx context.Context) error {
	serial := t.first + len(t.made)
	p := t.newPayment(serial)
	if err := t.create(ctx, serial, p); err != nil {
		return err
	}
	t.made = append(t.made, p)
	t.partner.count(func(c *haCounts) { c.Payments++ })
	return nil
}

// newPayment returns the payment with a serial number in the Site. The number determines the
// amount, the plan and the customer.
func (t *till) newPayment(serial int) *haPayment {
	p := &haPayment{amount: firstPaymentAmount + int64(t.partner.number*rowAmounts+serial), plan: planPay}
	switch serial % 10 {
	case 3:
		p.plan = planCancel
	case 7:
		p.plan = planExpire
	}
	p.customer = t.partner.customers[serial%len(t.partner.customers)]
	return p
}

// create creates the payment intent of a payment.
func (t *till) create(ctx context.Context, serial int, p *haPayment) error {
	in := client.NewPaymentIntent{Amount: p.amount, OrderID: fmt.Sprint(serial), QRCodeFormat: "text"}
	var made client.CreatedPaymentIntent
	began, err := t.partner.call(ctx, func() (err error) {
		made, err = t.partner.api.CreatePaymentIntent(ctx, t.partner.site.String(), in, fmt.Sprint("payment-", serial))
		return err
	})
	if err != nil {
		return fmt.Errorf("create a payment intent: %w", err)
	}
	p.id, p.created = made.PaymentIntentID, since(began)
	p.code = made.QRCode[strings.LastIndex(made.QRCode, "/")+1:]
	return nil
}

// reconcile completes payments again after each promotion with loss. It chooses those that were
// completed before, and have an acknowledgement within the window of the loss.
func (t *till) reconcile(ctx context.Context) error {
	for _, window := range t.partner.fleet.losses.ended(t.windows) {
		t.windows++
		for _, p := range t.made[:t.advanced] {
			paid, final := p.paid != nil && p.paid.overlaps(window), p.final != nil && p.final.overlaps(window)
			if p.created.overlaps(window) || paid || final {
				if err := t.advance(ctx, p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// advance completes a payment according to its plan. It returns when the payment intent is final or
// lost, or when the plan is to let it expire.
func (t *till) advance(ctx context.Context, p *haPayment) error {
	for !p.vanished {
		got, err := t.read(ctx, p, 5*time.Second)
		switch {
		case err != nil:
			return err
		case p.vanished || got.State == "final" || got.State == "created" && p.plan == planExpire:
			return nil
		case got.State == "created" && p.plan == planCancel:
			err = t.cancel(ctx, p)
		case got.State == "created":
			err = t.pay(ctx, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// read reads a payment intent. It compares the answer with earlier ones, unless a promotion may
// have lost what those showed. If the intent was paid, the service delays the answer until the
// status is final, for up to wait.
func (t *till) read(ctx context.Context, p *haPayment, wait time.Duration) (client.PaymentIntent, error) {
	if p.paid == nil {
		wait = 0
	}
	partner := t.partner
	var got client.PaymentIntent
	began, err := partner.call(ctx, func() (err error) {
		got, err = partner.api.PaymentIntent(ctx, partner.site.String(), p.id, wait)
		return err
	})
	losses := partner.fleet.losses
	switch {
	case isMissing(err):
		if !losses.mayBeLost(p.created) {
			partner.breach("the acknowledged payment intent %s vanished without a loss", p.id)
		}
		p.vanished = true
		partner.count(func(c *haCounts) { c.Vanished.Intents++ })
		return got, nil
	case err != nil:
		return got, fmt.Errorf("read payment intent %s: %w", p.id, err)
	}
	if p.paid != nil && got.State == "created" {
		if !losses.mayBeLost(*p.paid) {
			partner.breach("the acknowledged payment of %s vanished without a loss", p.id)
		}
		p.paid, p.plan = nil, p.afterLoss()
		partner.count(func(c *haCounts) { c.Vanished.Payments++ })
	}
	if p.final != nil && got.TransactionStatus != p.status && !losses.mayBeLost(*p.final) {
		partner.breach("payment intent %s was %s and is %q, without a loss", p.id, p.status, got.TransactionStatus)
	}
	p.final, p.status = nil, got.TransactionStatus
	if got.State == "final" {
		at := since(began)
		p.final = &at
	}
	return got, nil
}

// afterLoss returns the plan for a payment intent after the loss of its acknowledged payment. Some
// customers pay again, and others do not; some partners cancel. The gateway may have the debit of
// the lost payment nevertheless.
func (p *haPayment) afterLoss() string {
	return []string{planPay, planExpire, planCancel, planPay}[p.amount%4]
}

// cancel cancels a payment intent. A refusal is no error.
func (t *till) cancel(ctx context.Context, p *haPayment) error {
	_, err := t.partner.call(ctx, func() error {
		_, err := t.partner.api.CancelPaymentIntent(ctx, t.partner.site.String(), p.id)
		return err
	})
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status < http.StatusInternalServerError {
		return nil // the next read shows the state
	}
	return err
}

// pay pays a payment intent as its customer. A refusal other than 404 is a breach.
func (t *till) pay(ctx context.Context, p *haPayment) error {
	began, err := t.partner.call(ctx, func() error { return t.app.pay(ctx, p.code, p.customer.agreement) })
	var refused *client.Error
	switch {
	case isMissing(err):
		return nil // the next read shows the state
	case errors.As(err, &refused) && refused.Status < http.StatusInternalServerError:
		t.partner.breach("payment intent %s cannot be paid: %v", p.id, err)
		p.plan = planExpire
		return nil
	case err != nil:
		return err
	}
	paid := since(began)
	p.paid = &paid
	return nil
}

// audit reads and checks every payment intent once more.
func (t *till) audit(ctx context.Context) error {
	for _, p := range t.made {
		if p.vanished {
			continue
		}
		got, err := t.read(ctx, p, 0)
		if err != nil {
			return err
		}
		if !p.vanished && got.State != "final" {
			t.partner.breach("payment intent %s is %s", p.id, got.State)
		}
	}
	return nil
}
