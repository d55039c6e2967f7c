package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

// paymentPage shows a payment intent to the customer that has scanned its QR code. In the sandbox
// the page has a form that pays or declines.
type paymentPage struct {
	hostedPage
	notify func([]models.TaskID) // may be nil
}

// show answers with the page of the payment intent whose code is in the path.
func (p *paymentPage) show(ctx context.Context, r *Request) error {
	page, err := p.page(ctx, r)
	if err != nil {
		return err
	}
	return p.answer(r, page)
}

// page reads the payment intent and returns its page.
func (p *paymentPage) page(ctx context.Context, r *Request) (web.Payment, error) {
	intent, payee, err := p.store.PaymentIntentByCode(ctx, r.Param())
	if err != nil {
		return web.Payment{}, r.intentError(err)
	}
	page := web.Payment{
		Hosted: p.describe(payee, intent.ExpiresAt, paymentChoices()),
		State:  paymentState(&intent), OrderID: intent.OrderID,
		Amount: web.Money(int64(intent.Amount), intent.Currency), Code: intent.Code,
	}
	if intent.State == models.IntentFinal {
		page.ReturnURL, page.EndedAt = intent.ReturnURL, intent.FinalAt.Time()
	}
	if paid, ok := intent.AmountPaid(); ok {
		page.Paid, page.Receipt = web.Money(int64(paid), intent.Currency), intent.Transaction.ID.String()
	}
	page.Items, page.Totals = statement(&intent)
	return page, nil
}

// paymentState maps a payment intent to the state of the page.
func paymentState(p *models.PaymentIntent) web.PaymentState {
	switch p.State {
	case models.IntentCreated:
		return web.PaymentOpen
	case models.IntentPending:
		return web.PaymentPending
	default:
		return paymentEndings[p.Status]
	}
}

// paymentEndings maps the final transaction statuses to states of the page.
var paymentEndings = map[models.TransactionStatus]web.PaymentState{
	models.TransactionSettled:   web.PaymentPaid,
	models.TransactionDeclined:  web.PaymentDeclined,
	models.TransactionFailed:    web.PaymentFailed,
	models.TransactionCancelled: web.PaymentCancelled,
	models.TransactionExpired:   web.PaymentExpired,
}

// answer answers with a page, and with a status that fits its state.
func (p *paymentPage) answer(r *Request, page web.Payment) error {
	status := http.StatusOK
	switch {
	case page.Complaint != "":
		status = http.StatusBadRequest
	case page.State == web.PaymentExpired || page.State == web.PaymentCancelled:
		status = http.StatusGone
	}
	return r.page(status, page)
}

// act executes the action of the sandbox's form: pay or decline.
func (p *paymentPage) act(ctx context.Context, r *Request) error {
	action, behaviour, err := p.form(r)
	if err != nil {
		return err
	}
	page, err := p.page(ctx, r)
	if err != nil {
		return err
	}
	if page.State != web.PaymentOpen { // the payment intent has changed since the page was shown
		return p.answer(r, page)
	}
	if action == "decline" {
		behaviour = models.BehaviourDeclines
	} else if action != "pay" || checkBehaviour(string(behaviour)) != nil {
		page.Complaint = "Choose how the account should behave, and then whether to pay."
		return p.answer(r, page)
	}
	if err := p.pay(ctx, r.Param(), behaviour); err != nil {
		return err
	}
	if err := p.awaitResult(ctx, r); err != nil {
		return err
	}
	return r.seeOther(page.Path())
}

// resultWait is the time for which the form's answer waits for the result, so that most customers
// see it at once. Later results appear on the page by themselves.
const resultWait = time.Second

// awaitResult returns when the payment is final or after resultWait.
func (p *paymentPage) awaitResult(ctx context.Context, r *Request) error {
	waiting, cancel := context.WithTimeout(ctx, resultWait)
	defer cancel()
	for waiting.Err() == nil {
		intent, _, err := p.store.PaymentIntentByCode(ctx, r.Param())
		if err != nil {
			return r.intentError(err)
		}
		if intent.State == models.IntentFinal {
			return nil
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pay lets a generated customer begin to pay. If the payment intent was taken or has ended
// meanwhile, pay returns nil: the page then shows that.
func (p *paymentPage) pay(ctx context.Context, code string, behaviour models.Behaviour) error {
	party, err := newSandboxParty(ctx, p.store, behaviour)
	if err != nil {
		return err
	}
	started, err := p.store.StartTransaction(ctx, code, party, nil)
	if errors.Is(err, models.ErrIntentTaken) || errors.Is(err, models.ErrIntentExpired) ||
		errors.Is(err, models.ErrIntentCancelled) {
		return nil
	}
	notifyTasks(p.notify, started.Task)
	return err
}
