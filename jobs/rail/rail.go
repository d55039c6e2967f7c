// Package rail is the port to a payment rail: a bank, or a gateway to one, that takes money from a
// customer's account under a standing agreement. The service never holds money. It asks a rail to
// move money, and must then find out whether the rail did.
//
// # The one hard problem
//
// A debit is a message to another machine. Without an answer the money may have moved or not, and
// the service cannot tell. A blind retry debits twice. Giving up loses a debit that was made. The
// port excludes both:
//
//   - Every debit carries a key that its caller derives from the debit's purpose and never changes.
//     A rail debits at most once under one key, however often, and from however many processes, it
//     is asked.
//   - A rail never claims more than it knows. "Nothing was debited" (Unavailable) and "I do not
//     know" (Unknown) are different statuses, and everything that is not certain is Unknown.
//   - Lookup under the same key may resolve Unknown, and Cancel ends it: a cancelled key is never
//     debited, even by a request that is still in flight.
//   - A key belongs to the Particulars of the first debit that arrived under it. A debit with other
//     particulars is answered Conflict: it is not made, and the earlier result is not reported.
//
// # The statuses
//
//	               meaning                                            final   from
//	Succeeded      debited, once                                      yes     Debit Lookup Cancel
//	Refused        declined by the rail: never debited                yes     Debit Lookup Cancel
//	Cancelled      closed by Cancel: never debited                    yes     Debit Lookup Cancel
//	Conflict       another debit holds the key: this one is not made  yes     Debit
//	Unavailable    this call debited nothing; a later one may         no      Debit
//	Invalid        this call debited nothing: it must be changed      no      Debit
//	NotFound       nothing has arrived under the key so far           no      Lookup
//	Unknown        nothing is known                                   no      Debit Lookup Cancel
//
// A final status is the truth about the requested debit: every later call under the key with the
// same particulars reports it again. Conflict is final for the requested debit alone: the debit
// that holds the key has its own status, which Lookup reports.
//
// The other statuses are about one call. Unavailable, Invalid and NotFound say nothing about
// earlier calls under the key: a debit that ended Unknown an hour ago may have succeeded, or may
// still arrive. Only a final result of Cancel ends that doubt.
//
// # Memory
//
// Rails keep keys for at least seven days after the last call (models.RailMemory). After that a
// rail may forget them. Keys are opaque to rails.
//
// # The list
//
// List reports all successful debits by time, for comparison with the ledger. The list may lag
// behind: each answer says up to which time it is complete, and that part never changes.
//
// # Admission
//
// A rail may limit the rate of requests, so a request may have to wait. The preconditions of a
// debit must be checked after that wait, right before the call. Callers therefore first Admit, then
// check, then call. The calls themselves do not wait for admission.
//
// # Adapters
//
// Sandbox simulates a rail in Postgres, with accounts that behave as chosen at sign-up. HTTP uses a
// payment gateway over the contract in HTTP.md, and Server serves that contract from any other
// Rail. Package railtest holds the conformance suite of all adapters, and a scripted double for
// tests of the port's callers.
package rail

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"partnerbilling/models"
)

// Debit is one order to take money from a customer.
type Debit struct {
	// Key identifies this debit for ever. See ValidateKey for its form.
	Key string
	// AgreementID is the customer's payment agreement. It names the account to debit, and the right
	// to debit it.
	AgreementID string
	// CustomerID is the customer app's id of the customer. Rails may show it to the payer. It has
	// no effect on the debit.
	CustomerID string
	// Amount is the sum to take, at least 1, in the minor unit of Currency.
	Amount models.Amount
	// Currency is an ISO 4217 code.
	Currency string
	// OrganisationID and SiteID are the payee. Admissions are fair between organisations.
	OrganisationID models.OrganisationID
	SiteID         models.SiteID
}

// Particulars returns the part of the debit that its key fixes.
func (d Debit) Particulars() Particulars { return Particulars{d.AgreementID, d.Amount, d.Currency} }

// Particulars are the values that a rail holds under a key. The first debit that arrives under the
// key fixes them for ever. They stay zero if the key was cancelled before any debit arrived.
type Particulars struct {
	AgreementID string
	Amount      models.Amount
	Currency    string
}

// ConflictsWith reports whether p differs from the particulars of d. Zero particulars conflict with
// no debit.
func (p Particulars) ConflictsWith(d Debit) bool {
	return p != Particulars{} && p != d.Particulars()
}

// Status is the kind of a rail's answer about one key. The zero Status is Unknown, so that a
// missing answer claims nothing.
type Status int

// The statuses. The table in the package comment shows the calls that report each.
const (
	// Unknown: the call timed out, its answer was lost, or the rail has not decided yet. The key
	// may have been debited already, or may still be.
	Unknown Status = iota
	// Succeeded: the money was taken, exactly once.
	Succeeded
	// Refused: nothing was taken under the key, and nothing will be. Result.Reason has the cause.
	Refused
	// Unavailable: the call took nothing, and will not, since the bank or the rail cannot serve it
	// now. The same key may be debited later. The status says nothing about earlier calls.
	Unavailable
	// NotFound: nothing has arrived under the key so far. An earlier call may still be in flight.
	NotFound
	// Cancelled: the key was cancelled before it was debited, and will never be.
	Cancelled
	// Conflict: a debit with another agreement, amount or currency holds the key. It stays as it
	// is, and the answer does not report it. The requested debit was not made and never will be
	// under this key.
	Conflict
	// Invalid: the rail cannot carry out the debit as it stands. The call took nothing, and is not
	// recorded under the key. The status says nothing about earlier calls.
	Invalid
	// StatusCount is the number of statuses.
	StatusCount = int(iota)
)

var statusNames = [StatusCount]string{
	Unknown: "unknown", Succeeded: "succeeded", Refused: "refused", Unavailable: "unavailable", NotFound: "notFound",
	Cancelled: "cancelled", Conflict: "conflict", Invalid: "invalid",
}

// String returns the status in camelCase, for logs and metrics.
func (s Status) String() string {
	if s < 0 || int(s) >= StatusCount {
		return fmt.Sprintf("status(%d)", int(s))
	}
	return statusNames[s]
}

// Final reports whether the status is the truth about the requested debit, for ever.
func (s Status) Final() bool {
	return s == Succeeded || s == Refused || s == Cancelled || s == Conflict
}

// Reason is the cause of a refusal, as it appears on the wire.
type Reason string

// The reasons. Each is also the outcome that the partner sees.
const (
	InsufficientFunds  Reason = "insufficientFunds"
	AccountUnavailable Reason = "accountUnavailable" // closed, frozen, or no such agreement
	LimitExceeded      Reason = "limitExceeded"
	DeclinedByCustomer Reason = "declinedByCustomer"
	Declined           Reason = "declined" // any other refusal
)

// ParseReason returns the reason of a refusal. It returns Declined for any unknown text, so that a
// new reason of a gateway does no harm.
func ParseReason(s string) Reason {
	switch r := Reason(s); r {
	case InsufficientFunds, AccountUnavailable, LimitExceeded, DeclinedByCustomer:
		return r
	default:
		return Declined
	}
}

// Result is a rail's answer about one key: a status with its details.
type Result struct {
	Status Status
	// Reason is set with Refused, and "" otherwise.
	Reason Reason
	// Held holds the particulars under the key, in results of Lookup and Cancel. It is set with
	// Succeeded and Refused, and may be set with Unknown and Cancelled. Otherwise, and in results
	// of Debit, it is zero.
	Held Particulars
	// Detail explains a Conflict or a status that is not final, for logs. It contains no names or
	// amounts.
	Detail string
}

// Rail takes money from customers. Implementations are safe for concurrent use and never panic.
//
// Debit, Lookup and Cancel handle many keys at once and share one form. They call report exactly
// once for every index of their slice, as soon as its answer is known. Reports come in any order,
// possibly from several goroutines at once. They return when all is reported, and call report no
// more after that. An invalid item never changes the result of another. The same key twice in one
// call counts as two calls.
//
// When ctx ends they return soon, and report the open items truthfully: Unknown if the item may
// have been sent, Unavailable (Debit only) if it certainly was not. The end of ctx does not revoke
// a debit that was sent.
type Rail interface {
	// Admit waits until the rail admits requests, and returns how many of n are admitted: at least
	// 1, or 0 if ctx ends first or n is below 1. Each admission is for one item of a call that
	// follows at once. An unused admission is lost. The organisation is the payee, so that
	// admissions are fair between organisations. It is zero for look-ups, cancellations and List.
	Admit(ctx context.Context, organisation models.OrganisationID, n int) int

	// Debit takes the money of each debit, at most once for each key. The first debit that arrives
	// under a key fixes its particulars. A later debit with the same particulars gets the result of
	// the first. A later debit with other particulars is a Conflict. A debit under a key that was
	// cancelled before any debit arrived is Cancelled. A debit that fails Validate is Invalid.
	Debit(ctx context.Context, debits []Debit, report func(i int, r Result))

	// Lookup reports the status of keys, and the particulars that they hold. It changes nothing.
	Lookup(ctx context.Context, keys []string, report func(i int, r Result))

	// Cancel closes keys against debits, including keys that the rail has never seen. The result is
	// Cancelled, or the final status that the key had reached before, or Unknown without an answer.
	// It reports the particulars as Lookup does. Cancel is idempotent.
	Cancel(ctx context.Context, keys []string, report func(i int, r Result))

	// List returns a page of the successful debits by time. The call is one request, for Admit as
	// well, and changes nothing. After an error nothing is known.
	List(ctx context.Context, q ListQuery) (ListPage, error)
}

// ErrInvalidKey reports that a text cannot be a key.
var ErrInvalidKey = errors.New("rail: invalid key")

// ValidateKey returns ErrInvalidKey unless the key has 1 to 128 code points of valid UTF-8, no
// control, invisible or direction-changing characters, and is neither "." nor "..". Lookup and
// Cancel report an invalid key as Unknown.
func ValidateKey(key string) error {
	if err := models.ValidateReference(key); err != nil {
		return fmt.Errorf("%w: it %w", ErrInvalidKey, err)
	}
	return nil
}

// Validate returns an error if no rail can carry out the debit: an invalid key, agreement or
// currency, an amount out of range, or text that is not UTF-8. Rail.Debit reports such a debit as
// Invalid.
func (d Debit) Validate() error {
	if err := ValidateKey(d.Key); err != nil {
		return err
	}
	if err := models.ValidateReference(d.AgreementID); err != nil {
		return fmt.Errorf("rail: agreement: %w", err)
	}
	if !utf8.ValidString(d.CustomerID) {
		return errors.New("rail: the customer's id is not UTF-8")
	}
	return d.Particulars().validate()
}

// validate checks that the particulars are complete and in range.
func (p Particulars) validate() error {
	switch {
	case p.AgreementID == "":
		return errors.New("rail: no agreement")
	case p.Amount < 1 || p.Amount > models.MaxAmount:
		return errors.New("rail: amount out of range")
	case len(p.Currency) != 3 || strings.Trim(p.Currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "":
		return errors.New("rail: currency is not an ISO 4217 code")
	}
	return nil
}
