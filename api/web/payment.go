package web

import (
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// PaymentState is the state that the page of a payment shows.
type PaymentState string

// The states of the page.
const (
	PaymentOpen      PaymentState = "open"      // waits for a customer
	PaymentPending   PaymentState = "pending"   // a payment is under way
	PaymentPaid      PaymentState = "paid"      // the page is the receipt
	PaymentDeclined  PaymentState = "declined"  // the account or the customer refused
	PaymentFailed    PaymentState = "failed"    // the bank could not debit, and debited nothing
	PaymentCancelled PaymentState = "cancelled" // the partner cancelled before a payment began
	PaymentExpired   PaymentState = "expired"   // no payment began in time
)

// PaymentLine is a line of a payment's sum.
type PaymentLine struct {
	Label  string
	Amount string // formatted by Money
}

// PaymentItem is a line item of a payment.
type PaymentItem struct {
	Name      string
	Quantity  int64
	Unit      string // the price of one, formatted by Money; "" for one, or if the units exceed Amount
	AddOns    string // the price of all add-ons, formatted by Money; "" for none
	Detail    string // customizations; "" for none
	Amount    string // before discounts, formatted by Money
	Discounts []PaymentLine
}

// Payment is the page behind a QR code. It shows payee, amount and line items, and nothing about
// the payer. Once paid, it is the receipt.
type Payment struct {
	Hosted
	State   PaymentState
	Amount  string // before discounts, formatted by Money
	Paid    string // charged, formatted by Money; only once paid
	OrderID string // "" for none
	Items   []PaymentItem
	Totals  []PaymentLine // below the items; the last line is what is to be paid or was paid
	Code    string        // names the payment in the page's path; needs no escaping
	EndedAt time.Time     // when the status became final
	Receipt string        // the number of the receipt; only once paid
	// ReturnURL leads back to the partner. It is "" if the payment has not ended, or if the partner
	// has given no URL.
	ReturnURL string
}

// Heading returns the main heading, which is also the title.
func (p Payment) Heading() string {
	switch p.State {
	case PaymentOpen:
		return "Pay " + p.Amount
	case PaymentPending:
		return "Your payment is on its way"
	case PaymentPaid:
		return "Paid " + p.Paid
	case PaymentDeclined:
		return "The payment was declined"
	case PaymentFailed:
		return "The payment did not work"
	case PaymentCancelled:
		return "This payment was cancelled"
	default:
		return "This payment has expired"
	}
}

// PollMillis returns the milliseconds after which the page reads the state again, 0 for never.
func (p Payment) PollMillis() int {
	switch p.State {
	case PaymentOpen:
		return 5000
	case PaymentPending:
		return 1000
	default:
		return 0
	}
}

// Ended formats EndedAt for people.
func (p Payment) Ended() string { return formatTime(p.EndedAt) }

// EndedISO formats EndedAt for machines, as RFC 3339 in UTC.
func (p Payment) EndedISO() string { return p.EndedAt.UTC().Format(time.RFC3339) }

// ReturnHost returns the host of ReturnURL, to be shown to people. It is "" without a URL.
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
func (p Payment) AppURL() template.URL { return p.App.to("P/" + p.Code) }

// Render returns the page as HTML.
func (p Payment) Render() ([]byte, error) { return render("payment.html", p) }

// Money formats an amount in hundredths of a currency for people: "AUD 1,234.50", "−AUD 0.50".
func Money(cents int64, currency string) string {
	if cents < 0 {
		return "\u2212" + Money(-cents, currency)
	}
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
