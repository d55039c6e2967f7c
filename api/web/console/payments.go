package console

import (
	"encoding/csv"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

// payment is a payment intent as the API returns it.
type payment struct {
	PaymentIntentID   string            `json:"paymentIntentId"`
	Amount            models.Amount     `json:"amount"`
	Currency          string            `json:"currency"`
	OrderID           string            `json:"orderId"`
	LineItems         []models.LineItem `json:"lineItems"`
	PaymentURL        string            `json:"paymentUrl"`
	ReturnURL         string            `json:"returnUrl"`
	State             string            `json:"state"`
	TransactionStatus string            `json:"transactionStatus"`
	TransactionID     string            `json:"transactionId"`
	AmountPaid        *models.Amount    `json:"amountPaid"`
	CreatedAt         models.Millis     `json:"createdAt"`
	ExpiresAt         models.Millis     `json:"expiresAt"`
}

// Shown returns the transaction status, or the state if there is none yet.
func (p payment) Shown() string {
	if p.TransactionStatus != "" {
		return p.TransactionStatus
	}
	return p.State
}

// Open reports whether the payment intent can still change.
func (p payment) Open() bool { return p.State != "final" }

// Paid returns the amount charged, 0 for none.
func (p payment) Paid() models.Amount {
	if p.AmountPaid == nil {
		return 0
	}
	return *p.AmountPaid
}

// paymentList is a page of the API's list of payment intents.
type paymentList struct {
	page
	Items []payment `json:"items"`
}

// open reports whether a payment of the list is under way.
func (l *paymentList) open() bool {
	for _, p := range l.Items {
		if p.State == "pending" {
			return true
		}
	}
	return false
}

// paymentsPage is the page with the list of a Site's payment intents and its filters.
type paymentsPage struct {
	List     paymentList
	OrderID  string
	Statuses []string // that the form offers
	Chosen   string
	Pager    pager
}

// paymentFilters are the states (lower case) and the transaction statuses (capitalised) that select
// payment intents.
var paymentFilters = []string{"created", "pending", "Settled", "Declined", "Failed", "Cancelled", "Expired"}

func (c *Console) listPayments(v *visit) error {
	p := paymentsPage{OrderID: v.query("orderId"), Chosen: v.query("status"), Statuses: paymentFilters}
	q := v.listQuery("orderId")
	if q.Get("cursor") == "" && p.Chosen != "" {
		if strings.ToLower(p.Chosen) == p.Chosen {
			q.Set("state", p.Chosen)
		} else {
			q.Set("transactionStatus", p.Chosen)
		}
	}
	if err := v.get(v.checkout(), q, &p.List); err != nil {
		return err
	}
	p.Pager = v.pager(p.List.page, "orderId", "status")
	return v.render(http.StatusOK, "payments", &base{Title: "Payments", Tab: "payments", Poll: p.List.open()}, p)
}

// pager holds the addresses of other pages of a list, "" for none. In Next and Prev, the cursor
// determines the page, and the filters are only there for the form to show them. In First, the
// filters select the list.
type pager struct{ Next, Prev, First string }

// pager returns the pager of a page. filters are the names of the list's parameters.
func (v *visit) pager(p page, filters ...string) pager {
	var shown []any
	for _, name := range filters {
		if value := v.query(name); value != "" {
			shown = append(shown, name, value)
		}
	}
	to := func(href string) string {
		cursor := cursorOf(href)
		if cursor == "" {
			return ""
		}
		return web.WithQuery(v.r.URL.EscapedPath(), append(shown, "cursor", cursor)...)
	}
	out := pager{Next: to(p.NextHref), Prev: to(p.PrevHref)}
	if v.query("cursor") != "" {
		out.First = web.WithQuery(v.r.URL.EscapedPath(), shown...)
	}
	return out
}

// paymentForm holds the fields of the form for a new payment intent.
type paymentForm struct {
	Amount, OrderID, Items, Minutes, ReturnURL string
}

func (c *Console) newPayment(v *visit) error {
	return v.paymentForm(http.StatusOK, paymentForm{Amount: "1250"}, nil)
}

func (v *visit) paymentForm(status int, f paymentForm, faults []fault) error {
	return v.render(status, "new-payment", &base{Title: "New payment intent", Tab: "payments", Faults: faults}, f)
}

func (c *Console) createPayment(v *visit) error {
	f := paymentForm{v.form("amount"), v.form("orderId"), v.form("items"), v.form("minutes"), v.form("returnUrl")}
	body := object("amount", literal(f.Amount), "orderId", f.OrderID, "returnUrl", f.ReturnURL)
	items, err := readLineItems(f.Items)
	if err != nil {
		return v.paymentForm(http.StatusBadRequest, f, []fault{{Message: err.Error(), Target: "lineItems"}})
	}
	if len(items) > 0 {
		body["lineItems"] = items
	}
	if f.Minutes != "" {
		minutes, err := strconv.ParseInt(f.Minutes, 10, 32)
		if err != nil {
			faults := []fault{{Message: "The minutes must be a whole number.", Target: "expiresAt"}}
			return v.paymentForm(http.StatusBadRequest, f, faults)
		}
		now, err := c.ServiceTime(v.ctx)
		if err != nil {
			return err
		}
		body["expiresAt"] = now.Add(time.Duration(minutes) * time.Minute)
	}
	var made struct {
		PaymentIntentID string `json:"paymentIntentId"`
	}
	refusal, err := refused(v.post(v.checkout(), body, &made))
	if refusal != nil {
		return v.paymentForm(refusal.Status, f, refusal.faults)
	}
	if err != nil {
		return err
	}
	return v.seeOther(v.sitePath("/payment", "id", made.PaymentIntentID))
}

var errLineItem = errors.New("a line item is a line of itemId, quantity, amountPerUnit, amountSubtotal")

// readLineItems reads line items as CSV: one on each line, in the form of errLineItem.
func readLineItems(text string) ([]map[string]any, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	reader := csv.NewReader(strings.NewReader(text))
	reader.TrimLeadingSpace, reader.FieldsPerRecord = true, 4
	lines, err := reader.ReadAll()
	if err != nil {
		return nil, errLineItem
	}
	items := make([]map[string]any, len(lines))
	for i, line := range lines {
		items[i] = object("itemId", line[0], "quantity", literal(line[1]),
			"amountPerUnit", literal(line[2]), "amountSubtotal", literal(line[3]))
	}
	return items, nil
}

// paymentPage is the page of one payment intent.
type paymentPage struct {
	Payment    payment
	QRCode     string // a picture as a data URI; "" unless the state is created
	Behaviours []web.Choice
	Events     []webhookEvent
}

func (c *Console) showPayment(v *visit) error {
	return v.paymentPage(http.StatusOK, v.query("id"), nil)
}

func (v *visit) paymentPage(status int, id string, faults []fault) error {
	p := paymentPage{Behaviours: v.console.PaymentBehaviours}
	if err := v.get(v.checkout(id), nil, &p.Payment); err != nil {
		return err
	}
	if p.Payment.State == "created" {
		var err error
		if p.QRCode, err = v.console.QRCode(p.Payment.PaymentURL); err != nil {
			return err
		}
	}
	var events eventList
	err := v.get("/webhooks/events", url.Values{"paymentIntentId": {id}, "limit": {"10"}}, &events)
	if err := v.withinScope(err); err != nil {
		return err
	}
	p.Events = events.Items
	poll := p.Payment.Open() || events.open() || len(events.Items) == 0 && !v.partial
	return v.render(status, "payment", &base{
		Title: "Payment of " + money(p.Payment.Amount, p.Payment.Currency), Tab: "payments", Poll: poll, Faults: faults,
	}, p)
}

// changePayment pays a payment intent as a simulated customer, or cancels it.
func (c *Console) changePayment(v *visit) error {
	id := v.form("id")
	var err error
	switch v.form("action") {
	case "pay":
		body := object("behaviour", v.form("behaviour"))
		if amount := v.form("discount"); amount != "" {
			body["discounts"] = []any{object("lineItemIndex", 0, "amount", literal(amount), "reason",
				"discount of the console")}
		}
		err = v.post(pathOf("sandbox", "payment-intents", id, "payment"), body, nil)
	case "cancel":
		err = v.post(v.checkout(id, "cancellation"), nil, nil)
	default:
		return errForm
	}
	refusal, err := refused(err)
	if refusal != nil {
		return v.paymentPage(refusal.Status, id, refusal.faults)
	}
	if err != nil {
		return err
	}
	return v.seeOther(v.sitePath("/payment", "id", id))
}
