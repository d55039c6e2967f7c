package web

import (
	"strconv"
	"strings"
	"time"
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
	State        PaymentState
	Organisation string
	Site         string
	Amount       string // to pay, with its currency
	Paid         string // what was charged, with its currency; of a paid one
	OrderID      string // "" for none
	Items        []PaymentItem
	ExpiresAt    time.Time // of an open one
	Code         string    // of characters that need no escaping in a path
	Sandbox      bool      // the page plays the customer app, and so has a form
	Choices      []Choice  // of the form
	Complaint    string    // about what was sent with the form; "" for none
	App          AppLink   // where an open one leads outside the sandbox
}

// Path is where the page is, and where its form goes.
func (p Payment) Path() string { return "/P/" + p.Code }

// AppURL opens the customer app; "" if no deep link is configured.
func (p Payment) AppURL() any { return p.App.to("P/" + p.Code) }

// Deadline is the end of the payment intent for people. Where they are is unknown, so it is in UTC.
func (p Payment) Deadline() string {
	return p.ExpiresAt.UTC().Format("Monday 2 January 2006, 15:04 UTC")
}

// DeadlineISO is the end of the payment intent for machines.
func (p Payment) DeadlineISO() string { return p.ExpiresAt.UTC().Format(time.RFC3339) }

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
