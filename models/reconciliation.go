package models

import (
	"fmt"
	"slices"
	"time"
)

// DifferenceKind is the kind of a difference between ledger and rail. Each kind but
// DifferenceInFlight is also the kind of the alert about it.
type DifferenceKind string

// The kinds of differences.
const (
	// DifferenceInFlight: the rail debited an open row or payment, or has not answered about an
	// entry. Such a difference passes by itself, or becomes a finding after RailMemory.
	DifferenceInFlight DifferenceKind = "inFlight"
	// DifferenceUnknown: the rail debited under a key that no row or payment has.
	DifferenceUnknown DifferenceKind = "railDebitUnknown"
	// DifferenceUnrecorded: the rail debited a row or payment that has ended without a ledger
	// entry.
	DifferenceUnrecorded DifferenceKind = "railDebitUnrecorded"
	// DifferenceDenied: the ledger has an entry whose debit the rail denies, or has not confirmed
	// within RailMemory.
	DifferenceDenied DifferenceKind = "ledgerEntryDenied"
	// DifferenceParticulars: ledger and rail differ in amount, currency or agreement.
	DifferenceParticulars DifferenceKind = "railDebitDiffers"
)

// Findings lists the kinds of differences that need an operator.
var Findings = []DifferenceKind{
	DifferenceUnknown, DifferenceUnrecorded, DifferenceDenied, DifferenceParticulars,
}

// IsFinding reports whether a difference of the kind needs an operator.
func (k DifferenceKind) IsFinding() bool { return slices.Contains(Findings, k) }

// Difference is a rail key about which ledger and rail do not agree.
type Difference struct {
	RailKey   string
	Kind      DifferenceKind
	SiteID    SiteID // zero if unknown
	DebitedAt Millis // by the rail's clock; 0: not debited, or unknown
	Detail    string // text for an operator; names no customer and no agreement
	// Aged: the rail may have forgotten the debit. Only DueDifferences sets it.
	Aged bool
}

// LedgerEntry is an entry of the ledger, with the agreement that was debited for it.
type LedgerEntry struct {
	RailKey         string
	SiteID          SiteID
	RecordedAt      Millis          // in service time
	Amount          Amount          // in minor units of Currency
	Currency        string          // ISO 4217
	BatchReference  string          // "" for a payment
	RowReference    string          // "" for a payment
	PaymentIntentID PaymentIntentID // zero for a row
	AgreementID     string          // "" if it was erased or cannot be opened
}

// LedgerPosition is the position of an entry in the order of LedgerBetween. The zero position is
// the beginning.
type LedgerPosition struct {
	SiteID     SiteID
	RecordedAt Millis
	RailKey    string
}

// Position returns the position of the entry in the order of LedgerBetween.
func (e *LedgerEntry) Position() LedgerPosition {
	return LedgerPosition{e.SiteID, e.RecordedAt, e.RailKey}
}

// Subject names the row or payment of the entry for an operator.
func (e *LedgerEntry) Subject() string {
	return subjectText(e.BatchReference, e.RowReference, e.PaymentIntentID)
}

// DebitSubject is the row or payment that a rail key belongs to.
type DebitSubject struct {
	RailKey         string
	SiteID          SiteID
	BatchReference  string          // "" for a payment
	RowReference    string          // "" for a payment
	PaymentIntentID PaymentIntentID // zero for a row
	Open            bool            // the rail or an operator may still change its outcome
	Outcome         string          // a row's RowOutcome or a payment's TransactionStatus; "": none yet
}

// Subject names the row or payment for an operator.
func (d *DebitSubject) Subject() string {
	return subjectText(d.BatchReference, d.RowReference, d.PaymentIntentID)
}

// subjectText names a payment by its intent, or else a row by its references.
func subjectText(batch, row string, intent PaymentIntentID) string {
	if intent != (PaymentIntentID{}) {
		return "payment " + intent.String()
	}
	return fmt.Sprintf("row %q of batch %q", row, batch)
}

// Reconciliation is how far the comparison of ledger and rail has come.
type Reconciliation struct {
	// ComparedTo is the time up to which both lists are compared; 0: nothing has been compared.
	ComparedTo Millis
	// Since is when the present rail replaced another one, which made all earlier debits; 0: no
	// rail was replaced.
	Since Millis
	// Now is the service time of the answer.
	Now Millis
	// InFlight is the number of differences of DifferenceInFlight, at most MostCounted.
	InFlight int
}

// Lag returns how far ComparedTo is behind Now. If nothing has been compared, it returns
// RailMemory.
func (r Reconciliation) Lag() time.Duration {
	if r.ComparedTo == 0 {
		return RailMemory
	}
	return max(r.Now.Sub(r.ComparedTo), 0)
}

// Comparison is the result of a step of the comparison.
type Comparison struct {
	// From is the ComparedTo on which the step is based, and To the new one.
	From, To Millis
	Found    []Difference
	Resolved []string // rail keys that no longer have a difference
	// Gap is the detail of an alert if the step skips the time from From to To, which the rail's
	// list does not cover. Otherwise it is "".
	Gap string
}
