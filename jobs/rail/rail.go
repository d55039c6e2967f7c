// Package rail is the port to a payment rail: whatever takes money from a customer's account under a standing
// agreement. The service never holds money itself; it asks a rail to move it, and must then find out whether it did.
//
// # The one hard problem
//
// A debit is a message to another machine. When no answer comes back, the money may have moved or not, and nothing that
// this side can look at tells. Trying again blindly debits twice; giving up blindly loses a debit that was made. The port
// is shaped so that neither can happen:
//
//   - Every debit carries a key that its caller derives from what the debit is for, and never changes. A rail debits at
//     most once under one key, however often, and from however many processes, it is asked.
//   - A rail never claims more than it knows. "Nothing was debited" (Unavailable) and "I do not know" (Unknown) are
//     different statuses, and whatever is not certain is Unknown.
//   - Unknown is resolved by Lookup under the same key, and ended by Cancel: a cancelled key is never debited, even by a
//     request that is still on its way.
//
// # The statuses
//
//	               about the key                                      final   from
//	Succeeded      debited, once                                      yes     Debit Lookup Cancel
//	Refused        not debited, and never will be                     yes     Debit Lookup Cancel
//	Cancelled      not debited, and never will be                     yes     Debit Lookup Cancel
//	Unavailable    this call debited nothing; the key may come again  no      Debit
//	NotFound       nothing has arrived under it so far                no      Lookup
//	Unknown        nothing is known                                   no      Debit Lookup Cancel
//
// A final status is the truth about the key for ever: every later call under the key reports it again. Rails keep keys
// for at least seven days after the last call.
//
// The other statuses are about one call. Unavailable and NotFound clear no earlier call under the key: a debit that
// ended Unknown an hour ago may still arrive after them. Only Cancel closes that door.
//
// # Turns
//
// A rail may take only so many requests a second, so that there is a wait before each. Whether a debit may be made is judged
// after that wait and right before the call: callers take turns by Admit, then look, then call. The calls themselves wait
// for no turn.
//
// # Adapters
//
// Sandbox plays a rail in Postgres, with accounts that behave as they were told at sign-up. HTTP speaks to a payment
// gateway over the contract in HTTP.md, and Server serves that contract from any other Rail. Package railtest holds the
// conformance suite that every adapter passes, and a scripted double for tests of what uses a rail.
package rail

import (
	"context"
	"errors"
	"fmt"

	"partnerbilling/models"
)

// Debit is one order to take money from a customer.
type Debit struct {
	// Key names this debit for ever. See ValidateKey for its form.
	Key string
	// AgreementID is the customer's payment agreement: which account is debited, and by what right.
	AgreementID string
	// CustomerID is the customer app's name of the customer. Rails may show it to the payer; it does not decide.
	CustomerID string
	// Amount is what is taken, at least 1, in the minor unit of Currency.
	Amount models.Amount
	// Currency is an ISO 4217 code.
	Currency string
	// OrganisationID and SiteID say who is paid. Limits are shared fairly between organisations.
	OrganisationID models.OrganisationID
	SiteID         models.SiteID
}

// Status is what a rail says about one key. The zero Status is Unknown: whoever forgets to say has not said.
type Status int

// The statuses; the package comment has the table of which call reports which.
const (
	// Unknown: the call timed out, its answer was lost, or the rail has not decided yet. The key may be debited, or
	// become so later.
	Unknown Status = iota
	// Succeeded: the money was taken, exactly once.
	Succeeded
	// Refused: nothing was taken under the key, and nothing will be. The Reason says why.
	Refused
	// Unavailable: the call took nothing, and will not; the bank or the rail cannot serve now. The same key may be
	// debited again later. It says nothing about earlier calls.
	Unavailable
	// NotFound: nothing has arrived under the key so far. An earlier call may still be on its way.
	NotFound
	// Cancelled: the key was cancelled before it was debited, and will never be.
	Cancelled
)

// Statuses are all statuses.
var Statuses = []Status{Unknown, Succeeded, Refused, Unavailable, NotFound, Cancelled}

var statusNames = [...]string{"unknown", "succeeded", "refused", "unavailable", "notFound", "cancelled"}

// String is the status in camelCase, for logs and metrics.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return fmt.Sprintf("status(%d)", int(s))
	}
	return statusNames[s]
}

// Final reports whether the status is the truth about the key for ever.
func (s Status) Final() bool { return s == Succeeded || s == Refused || s == Cancelled }

// Reason says why a debit was refused, in the words of the wire.
type Reason string

// The reasons. All but KeyReused are the outcome of the debit as the partner sees it.
const (
	InsufficientFunds  Reason = "insufficientFunds"
	AccountUnavailable Reason = "accountUnavailable" // closed, frozen, or no such agreement
	LimitExceeded      Reason = "limitExceeded"
	DeclinedByCustomer Reason = "declinedByCustomer"
	Declined           Reason = "declined" // any other refusal
	// KeyReused: another debit holds the key, with another agreement, amount or currency. That one stands as it is
	// (Lookup tells how); the one that was asked for now is not and will never be made. Only a fault of the caller
	// leads here, so it is worth an alert. Only Debit reports it.
	KeyReused Reason = "keyReused"
)

// ParseReason reads the reason of a refusal on record. What a rail says beyond the named outcomes is read as Declined,
// so that a new reason of a gateway never makes its refusals unreadable.
func ParseReason(s string) Reason {
	switch r := Reason(s); r {
	case InsufficientFunds, AccountUnavailable, LimitExceeded, DeclinedByCustomer:
		return r
	default:
		return Declined
	}
}

// Result is a rail's answer about one key.
type Result struct {
	Status Status
	Reason Reason // of Refused; "" otherwise
	// Detail says for logs why the status is not final. It holds no names or amounts.
	Detail string
}

// Rail takes money from customers. Implementations are safe for concurrent use and never panic.
//
// Debit, Lookup and Cancel work on many keys at once and share one form. They call report exactly once for every index of
// their slice, as soon as its answer is known, in any order and possibly from several goroutines at once; they return
// when all is reported, and call report no more after that. An adapter whose rail takes one debit a request fans out
// under its own limits. One bad item never changes the result of another. The same key twice in one call is as in
// two calls.
//
// When ctx ends they return soon, with the truth for what was still open: Unknown for what may have been sent,
// Unavailable (of Debit) for what certainly was not. A debit that has been sent is not called back by that.
type Rail interface {
	// Admit waits until the rail takes requests, and returns how many of n may be made: at least one, or 0 if ctx ended
	// first or n is below 1. Each is a turn for one item of a call that follows at once. A turn that is not used is gone: the
	// rail gets fewer requests by that, never more. The organisation is the one that is paid, so that turns can be shared
	// fairly; it is zero for look-ups and cancellations, which settle what is in doubt.
	Admit(ctx context.Context, organisation models.OrganisationID, n int) int

	// Debit takes the money of each debit, at most once for each key. The first debit to arrive under a key fixes its
	// agreement, amount and currency; a later one with the same is answered as the first was, with others it is
	// Refused with KeyReused.
	Debit(ctx context.Context, debits []Debit, report func(i int, r Result))

	// Lookup asks what became of keys. It changes nothing.
	Lookup(ctx context.Context, keys []string, report func(i int, r Result))

	// Cancel closes keys against being debited, those included that the rail has never seen. The result is Cancelled,
	// or the final status that the key had reached before, or Unknown if no answer could be had. Cancel is idempotent.
	Cancel(ctx context.Context, keys []string, report func(i int, r Result))
}

// ErrInvalidKey says that a text cannot be a key.
var ErrInvalidKey = errors.New("rail: invalid key")

// ValidateKey checks a key: 1 to 128 code points of valid UTF-8, no control characters, neither "." nor "..". Lookup and
// Cancel, which cannot know anything of an invalid key, report it as Unknown.
func ValidateKey(key string) error {
	if err := models.ValidateReference(key); err != nil {
		return fmt.Errorf("%w: it %w", ErrInvalidKey, err)
	}
	return nil
}

// Validate finds what no rail could ever carry out: an invalid key or agreement, an amount out of range, no currency. Debit
// refuses such a debit as Declined, without recording it.
func (d Debit) Validate() error {
	if err := ValidateKey(d.Key); err != nil {
		return err
	}
	if d.Amount < 1 || d.Amount > models.MaxAmount {
		return errors.New("rail: amount out of range")
	}
	if len(d.Currency) != 3 {
		return errors.New("rail: currency is not an ISO 4217 code")
	}
	if err := models.ValidateReference(d.AgreementID); err != nil {
		return fmt.Errorf("rail: agreement: %w", err)
	}
	return nil
}
