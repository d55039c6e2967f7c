package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

// paymentPageRoutes are the hosted page behind a QR code, for a person's browser. Only in the sandbox it takes a form.
func paymentPageRoutes(cfg Config) []Route {
	p := &paymentPage{
		store: cfg.Store, notify: cfg.Notify, app: cfg.AppLink, sandbox: cfg.Sandbox != nil, baseURL: cfg.PublicBaseURL,
	}
	route := Route{
		Path: "/P/{code}", Audience: Public, Page: true,
		Param: Param{Name: "code", NotFound: PaymentIntentNotFound, Check: checkIntentCode},
	}
	show, act := route, route
	show.Method, show.Handler = http.MethodGet, p.show
	act.Method, act.Body, act.Handler = http.MethodPost, FormBody, p.act
	if !p.sandbox {
		return []Route{show}
	}
	return []Route{show, act}
}

// paymentPage shows a payment intent to whoever has scanned its code.
type paymentPage struct {
	store   *models.Store
	notify  func([]models.TaskID) // may be nil
	app     web.AppLink
	baseURL string
	sandbox bool // the page plays the customer app
}

func (p *paymentPage) show(ctx context.Context, r *Request) error {
	page, err := p.page(ctx, r)
	if err != nil {
		return err
	}
	return p.answer(r, page)
}

// page reads what the page has to say now.
func (p *paymentPage) page(ctx context.Context, r *Request) (web.Payment, error) {
	intent, payee, err := p.store.PaymentIntentByCode(ctx, r.Param())
	if err != nil {
		return web.Payment{}, r.intentError(err)
	}
	page := web.Payment{
		State: paymentState(&intent), Organisation: payee.OrganisationName, Site: payee.SiteName, OrderID: intent.OrderID,
		Amount: web.Money(int64(intent.Amount), intent.Currency), ExpiresAt: intent.ExpiresAt.Time(), Code: intent.Code,
		Sandbox: p.sandbox, App: p.app, Choices: paymentChoices(),
	}
	if paid, ok := intent.AmountPaid(); ok {
		page.Paid = web.Money(int64(paid), intent.Currency)
	}
	for _, l := range intent.LineItems {
		item := web.PaymentItem{Name: l.ItemID, Quantity: l.Quantity, Amount: web.Money(int64(l.AmountSubtotal), intent.Currency)}
		if l.AddOns != nil {
			item.Detail = l.AddOns.Customizations
		}
		page.Items = append(page.Items, item)
	}
	return page, nil
}

// paymentState is the state of the page for that of the payment intent.
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

// paymentEndings are the states of the page for the statuses with which a payment intent ends.
var paymentEndings = map[models.TransactionStatus]web.PaymentState{
	models.TransactionSettled:   web.PaymentPaid,
	models.TransactionDeclined:  web.PaymentDeclined,
	models.TransactionFailed:    web.PaymentFailed,
	models.TransactionCancelled: web.PaymentCancelled,
	models.TransactionExpired:   web.PaymentExpired,
}

func (p *paymentPage) answer(r *Request, page web.Payment) error {
	status := http.StatusOK
	switch {
	case page.Complaint != "":
		status = http.StatusBadRequest
	case page.State == web.PaymentExpired || page.State == web.PaymentCancelled:
		status = http.StatusGone
	case page.State == web.PaymentPending:
		r.SetHeader("Refresh", "2") // without JavaScript, the page looks again by itself
	}
	return r.page(status, page)
}

// act does what the form of the page says: pay, or decline.
func (p *paymentPage) act(ctx context.Context, r *Request) error {
	if !r.fromOwnPage(p.baseURL) {
		return Refuse(InvalidHeader, "Origin")
	}
	form, err := url.ParseQuery(string(r.Form))
	if err != nil {
		form = url.Values{}
	}
	page, err := p.page(ctx, r)
	if err != nil {
		return err
	}
	if page.State != web.PaymentOpen { // it has been decided meanwhile, and the page says how
		return p.answer(r, page)
	}
	behaviour := models.Behaviour(form.Get("behaviour"))
	if form.Get("action") == "decline" {
		behaviour = models.BehaviourDeclines
	} else if form.Get("action") != "pay" || checkBehaviour(string(behaviour)) != nil {
		page.Complaint = "Choose how the account should behave, and then whether to pay."
		return p.answer(r, page)
	}
	if err := p.pay(ctx, r.Param(), behaviour); err != nil {
		return err
	}
	r.SetHeader("Location", page.Path()) // show what comes of it; a reload sends nothing again
	return r.Bytes(http.StatusSeeOther, web.ContentType, nil)
}

// pay lets a made-up customer pay. Whoever was faster, or whatever ended the payment intent, the page shows it.
func (p *paymentPage) pay(ctx context.Context, code string, behaviour models.Behaviour) error {
	party, err := newSandboxParty(ctx, p.store, behaviour)
	if err != nil {
		return err
	}
	started, err := p.store.StartTransaction(ctx, code, party, nil)
	for _, decided := range []error{models.ErrIntentTaken, models.ErrIntentExpired, models.ErrIntentCancelled} {
		if errors.Is(err, decided) {
			return nil
		}
	}
	notifyOf(p.notify, started.Task)
	return err
}

// paymentChoices are the sandbox's behaviours in words, but for the one that has a button of its own.
func paymentChoices() []web.Choice {
	details := map[models.Behaviour]string{
		models.BehaviourPays:               "the payment succeeds",
		models.BehaviourInsufficientFunds:  "the payment is declined: insufficient funds",
		models.BehaviourAccountUnavailable: "the payment is declined: account not available",
		models.BehaviourLimitExceeded:      "the payment is declined: over a limit",
		models.BehaviourBankDown:           "unavailable for 30 seconds from now, then pays",
	}
	choices := slices.DeleteFunc(behaviourChoices(models.BehaviourPays), func(c web.Choice) bool {
		return c.Value == string(models.BehaviourDeclines)
	})
	for i, c := range choices {
		if detail, ok := details[models.Behaviour(c.Value)]; ok {
			choices[i].Detail = detail
		}
	}
	return choices
}
