package models

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
	"time"
)

// The bounds of a payment intent's life, from its creation to its expiry in service time, and the
// life of an intent whose request sets no expiry.
const (
	MinIntentLife     = time.Minute
	MaxIntentLife     = 24 * time.Hour
	DefaultIntentLife = 15 * time.Minute
)

// QRCodeFormat is the format in which the API returns an intent's QR code.
type QRCodeFormat string

// The formats, as on the wire.
const (
	QRCodeBase64 QRCodeFormat = "base64" // a PNG as a data URI
	QRCodeText   QRCodeFormat = "text"   // the content of the QR code
)

// PaymentIntent is one purchase to be paid, and its result.
type PaymentIntent struct {
	SiteID         SiteID
	ID             PaymentIntentID
	OrganisationID OrganisationID
	Code           string // the last part of the URL in the QR code
	Amount         Amount // in minor units, before discounts; at least 1
	Currency       string // ISO 4217
	OrderID        string // the partner's; "" for none
	LineItems      []LineItem
	ReturnURL      string // where the customer returns after the final status; "" for none
	QRCodeFormat   QRCodeFormat
	State          IntentState
	Status         TransactionStatus `bun:"transaction_status"` // "" until final
	StatusReason   RowOutcome        // why a Declined payment was declined; "" for other statuses
	CreatedAt      Millis
	ExpiresAt      Millis // the first millisecond at which a payment can no longer begin
	FinalAt        Millis // 0 until final
	TraceID        TraceID
	Transaction    Transaction `bun:"embed:"` // zero until a customer begins to pay
}

// NewPaymentIntentID returns a new id.
func NewPaymentIntentID() PaymentIntentID { return NewID[intentNoun]() }

// LineItem is one line of a purchase. It describes the goods and bounds the line's discounts. Its
// JSON is the wire form, and the stored form.
type LineItem struct {
	ItemID         string  `json:"itemId"`           // the partner's name of the item
	Quantity       int64   `json:"quantity"`         // of units
	AmountPerUnit  Amount  `json:"amountPerUnit"`    // in minor units
	AmountSubtotal Amount  `json:"amountSubtotal"`   // of the line before discounts; set by the partner
	AddOns         *AddOns `json:"addOns,omitempty"` // nil for none
}

// AddOns describes additions to a line.
type AddOns struct {
	Customizations string   `json:"customizations,omitempty"` // free text
	Modifiers      []string `json:"modifiers,omitempty"`      // identifiers or keys of the partner
}

// Transaction is a customer's payment of an intent. An intent has at most one.
type Transaction struct {
	ID        TransactionID `bun:"transaction_id"`
	Discounts []Discount
	Charge    Amount `bun:"amount_charged"` // the debited amount: the intent's amount less all discounts; may be 0
	StartedAt Millis
	// SealedParty is the sealed [Party] that pays. Only PaymentIntent, PaymentIntentByCode and
	// similar reads of one intent set it.
	SealedParty []byte `bun:"party"`
}

// Discount reduces the price of one line.
type Discount struct {
	LineItem int    `json:"lineItemIndex"` // from 0
	Amount   Amount `json:"amount"`        // at least 1
	Reason   string `json:"reason"`
}

// NewPaymentIntent is a partner's validated request for a payment intent.
type NewPaymentIntent struct {
	SiteID         SiteID
	OrganisationID OrganisationID // the intent counts against its quota; zero: against none
	Amount         Amount         // in minor units, before discounts
	OrderID        string         // "" for none
	QRCodeFormat   QRCodeFormat
	LineItems      []LineItem
	ReturnURL      string // "" for none; see CheckReturnURL
	ExpiresAt      Millis // 0: DefaultIntentLife from now
}

// Payee is the recipient of a customer's payments, as the hosted pages show it.
type Payee struct {
	OrganisationName   string
	OrganisationColour Colour
	SiteName           string
}

// IntentCodeLength is the number of characters in an intent's code.
const IntentCodeLength = 16

// NewIntentCode returns a new code: 80 random bits as 16 upper-case base32 characters, which suit
// the alphanumeric mode of QR codes.
func NewIntentCode() string {
	var b [10]byte
	rand.Read(b[:]) // never fails
	return base32.StdEncoding.EncodeToString(b[:])
}

// ValidIntentCode reports whether a text has the form of a code.
func ValidIntentCode(s string) bool {
	return len(s) == IntentCodeLength && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// AmountPaid returns the amount of the payment in minor units, and whether the payment has settled.
// Unless it has, nothing was paid.
func (p *PaymentIntent) AmountPaid() (Amount, bool) {
	return p.Transaction.Charge, p.Status == TransactionSettled
}

// DiscountError names a discount that cannot be given.
type DiscountError struct {
	Index   int    // of the discount in its list, from 0
	Field   string // the discount's field at fault, as written in JSON
	Message string // for the customer app: "must be …"
}

func (e *DiscountError) Error() string { return "models: discount's " + e.Field + " " + e.Message }

// Charge returns the amount to pay after the discounts, in minor units. A discount below 1, or of a
// line that does not exist, is a *DiscountError. So is a discount that makes the discounts of its
// line exceed the line's subtotal, or all discounts exceed the intent's amount.
func (p *PaymentIntent) Charge(discounts []Discount) (Amount, error) {
	left := make([]Amount, len(p.LineItems))
	for i, line := range p.LineItems {
		left[i] = line.AmountSubtotal
	}
	charge := p.Amount
	for i, d := range discounts {
		switch {
		case d.LineItem < 0 || d.LineItem >= len(left):
			return 0, &DiscountError{i, "lineItemIndex", "must be the index of a line item"}
		case d.Amount < 1:
			return 0, &DiscountError{i, "amount", "must be at least 1"}
		case d.Amount > left[d.LineItem]:
			return 0, &DiscountError{
				i, "amount", "must not make the discounts of its line item larger than its amountSubtotal",
			}
		case d.Amount > charge:
			return 0, &DiscountError{i, "amount", "must not make the discounts together larger than the amount to pay"}
		}
		left[d.LineItem] -= d.Amount
		charge -= d.Amount
	}
	return charge, nil
}

// push returns the body of the webhook event about the intent's final status.
func (p *PaymentIntent) push() TransactionStatusPush {
	push := TransactionStatusPush{
		SiteID: PushSite{ID: p.SiteID}, PaymentIntentID: p.ID, TransactionID: p.Transaction.ID,
		TransactionStatus: string(p.Status), TransactionStatusDescription: p.statusDescription(), OrderID: p.OrderID,
		LineItems: p.discountedLines(),
	}
	if !p.Transaction.ID.IsZero() {
		push.TransactionUpdated = p.FinalAt
	}
	if paid, ok := p.AmountPaid(); ok {
		push.AmountPaid = &paid
	}
	return push
}

// discountedLines returns the lines with their prices after discounts.
func (p *PaymentIntent) discountedLines() []PushLineItem {
	lines := make([]PushLineItem, len(p.LineItems))
	for i, l := range p.LineItems {
		lines[i] = PushLineItem{
			ItemID: l.ItemID, Quantity: l.Quantity, AmountPerUnit: l.AmountPerUnit, AmountSubtotal: l.AmountSubtotal,
			AddOns: (*PushAddOns)(l.AddOns), AmountTotal: l.AmountSubtotal,
		}
	}
	for _, d := range p.Transaction.Discounts {
		line := &lines[d.LineItem]
		line.AmountTotal -= d.Amount
		line.Discounts = append(line.Discounts, PushDiscount{Amount: d.Amount, Reason: d.Reason})
	}
	return lines
}

// statusDescription explains the status to partners; "" if there is nothing to add.
func (p *PaymentIntent) statusDescription() string {
	switch p.Status {
	case TransactionDeclined:
		return declineDescription(p.StatusReason)
	case TransactionFailed:
		return "The payment could not be made. Nothing was charged."
	case TransactionCancelled:
		return "The payment intent was cancelled."
	case TransactionExpired:
		return "No customer began to pay before the payment intent expired."
	default:
		return ""
	}
}

// declineDescription explains to partners why a payment was declined.
func declineDescription(reason RowOutcome) string {
	switch reason {
	case OutcomeInsufficientFunds:
		return "The customer's account has insufficient funds."
	case OutcomeAccountUnavailable:
		return "The customer's account is not available."
	case OutcomeLimitExceeded:
		return "The payment exceeds a limit of the customer's account."
	case OutcomeDeclinedByCustomer:
		return "The customer declined the payment."
	default:
		return "The payment was declined."
	}
}
