package web

import (
	"net/url"
	"strconv"
	"strings"
)

// PaymentState is what the page of a payment has to say.
type PaymentState string

// The states of the page.
const (
	PaymentOpen      PaymentState = "open"
	PaymentPending   PaymentState = "pending" // somebody pays
	PaymentPaid      PaymentState = "paid"
	PaymentDeclined  PaymentState = "declined"
	PaymentFailed    PaymentState = "failed"
	PaymentCancelled PaymentState = "cancelled"
	PaymentExpired   PaymentState = "expired"
)

// PaymentItem is one line of what is bought.
type PaymentItem struct {
	Name     string
	Quantity int64
	Detail   string // what was added; "" for nothing
	Amount   string // with its currency
}

// Payment is the page behind a QR code. It says who is paid, how much and for what, and nothing about who pays.
type Payment struct {
	Hosted
	State   PaymentState
	Amount  string // to pay, with its currency
	Paid    string // what was charged, with its currency; of a paid one
	OrderID string // "" for none
	Items   []PaymentItem
	Code    string // of characters that need no escaping in a path
	// ReturnURL leads back to the partner; "" for none, and until the payment has ended.
	ReturnURL string
}

// ReturnHost is where the way back leads, for people.
func (p Payment) ReturnHost() string {
	u, err := url.Parse(p.ReturnURL)
	if err != nil {
		return ""
	}
	return u.Host
}

// Path is where the page is, and where its form goes.
func (p Payment) Path() string { return "/P/" + p.Code }

// AppURL opens the customer app; "" if no deep link is configured.
func (p Payment) AppURL() any { return p.App.to("P/" + p.Code) }

// Render writes the page.
func (p Payment) Render() ([]byte, error) { return render("payment.html", p) }

// Money writes an amount in hundredths of a currency for people: "AUD 1,234.50".
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
