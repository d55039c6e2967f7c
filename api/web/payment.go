package web

import (
	"net/url"
	"strconv"
	"strings"
)

// PaymentState is the state that the page of a payment shows.
type PaymentState string

// The states of the page.
const (
	PaymentOpen      PaymentState = "open"
	PaymentPending   PaymentState = "pending" // a payment is under way
	PaymentPaid      PaymentState = "paid"
	PaymentDeclined  PaymentState = "declined"
	PaymentFailed    PaymentState = "failed"
	PaymentCancelled PaymentState = "cancelled"
	PaymentExpired   PaymentState = "expired"
)

// PaymentItem is a line item of a payment.
type PaymentItem struct {
	Name     string
	Quantity int64
	Detail   string // customizations; "" for none
	Amount   string // formatted by Money
}

// Payment is the page behind a QR code. It shows payee, amount and line items, and nothing about
// the payer.
type Payment struct {
	Hosted
	State   PaymentState
	Amount  string // to pay, formatted by Money
	Paid    string // charged, formatted by Money; only once paid
	OrderID string // "" for none
	Items   []PaymentItem
	Code    string // needs no escaping in a path
	// ReturnURL leads back to the partner. It is "" until the payment has ended, and if there is
	// none.
	ReturnURL string
}

// ReturnHost returns the host of ReturnURL, to be shown to people.
func (p Payment) ReturnHost() string {
	u, err := url.Parse(p.ReturnURL)
	if err != nil {
		return ""
	}
	return u.Host
}

// Path returns the path of the page and of its form.
func (p Payment) Path() string { return "/P/" + p.Code }

// AppURL returns the link that opens the customer app, "" if none is configured.
func (p Payment) AppURL() any { return p.App.to("P/" + p.Code) }

// Render returns the page as HTML.
func (p Payment) Render() ([]byte, error) { return render("payment.html", p) }

// Money formats an amount in hundredths of a currency for people: "AUD 1,234.50".
func Money(cents int64, currency string) string {
	units := strconv.FormatInt(cents/100, 10)
	var b strings.Builder
	for i, digit := range units {
		if i > 0 && (len(units)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	fraction := strconv.FormatInt(100+cents%100, 10)[1:]
	return currency + "\u00a0" + b.String() + "." + fraction
}
