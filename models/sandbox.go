package models

import (
	"errors"
	"time"
)

// Behaviour is how an account of the sandbox rail answers debits. The sign-up chooses it.
type Behaviour string

// The behaviours, as on the wire.
const (
	BehaviourPays               Behaviour = "pays"               // every debit succeeds
	BehaviourInsufficientFunds  Behaviour = "insufficientFunds"  // every debit is refused, for this reason
	BehaviourAccountUnavailable Behaviour = "accountUnavailable" // every debit is refused, for this reason
	BehaviourLimitExceeded      Behaviour = "limitExceeded"      // every debit is refused, for this reason
	BehaviourDeclines           Behaviour = "declines"           // the customer declines every debit
	BehaviourSlow               Behaviour = "slow"               // pays after SandboxSlowness
	// BehaviourBankDown: unavailable for SandboxBankDownFor after sign-up; then it pays.
	BehaviourBankDown   Behaviour = "bankDown"
	BehaviourAnswerLost Behaviour = "answerLost" // pays, and loses the first answer of each key
)

// Behaviours lists every behaviour, the usual one first.
var Behaviours = []Behaviour{
	BehaviourPays, BehaviourInsufficientFunds, BehaviourAccountUnavailable, BehaviourLimitExceeded, BehaviourDeclines,
	BehaviourSlow, BehaviourBankDown, BehaviourAnswerLost,
}

// The times of the sandbox's accounts.
const (
	// SandboxSlowness is how long a slow account takes to answer, in real time.
	SandboxSlowness = 2 * time.Second
	// SandboxBankDownFor is how long the bank of a bankDown account is unavailable from sign-up, in
	// service time.
	SandboxBankDownFor = 30 * time.Second
	// SandboxListDelay is how far the sandbox's list of debits stays behind service time. It
	// exceeds the time that a statement may take, so that the list is complete up to CompleteTo.
	// The exception is a commit that waits for a synchronous standby, because no time-out ends it.
	// Its debits may still join the part of the list that counts as complete. Production does not
	// use the sandbox.
	SandboxListDelay = 15 * time.Second
)

// ErrUnknownBehaviour says that a text names no behaviour.
var ErrUnknownBehaviour = errors.New("models: unknown behaviour")

// ParseBehaviour reads the wire form; anything but one of Behaviours is ErrUnknownBehaviour.
func ParseBehaviour(s string) (Behaviour, error) {
	for _, b := range Behaviours {
		if s == string(b) {
			return b, nil
		}
	}
	return "", ErrUnknownBehaviour
}

// SandboxStatus is a state that the sandbox records under a rail key, or an answer that it never
// records.
type SandboxStatus string

// The first four are recorded; all of them but SandboxUndecided are final. The first call after an
// undecided debit's due time turns it into SandboxSucceeded, unless its key was cancelled. The
// remaining statuses are answers only.
const (
	SandboxSucceeded SandboxStatus = "succeeded"
	SandboxRefused   SandboxStatus = "refused"
	SandboxCancelled SandboxStatus = "cancelled"
	SandboxUndecided SandboxStatus = "undecided"

	SandboxUnseen     SandboxStatus = "unseen"     // nothing recorded
	SandboxBankIsDown SandboxStatus = "bankIsDown" // nothing recorded; the debit may be tried again
	SandboxLost       SandboxStatus = "lost"       // recorded, and the caller gets no answer
	SandboxConflict   SandboxStatus = "conflict"   // recorded with another agreement, amount or currency
)

// SandboxParticulars are the values that the first debit under a key fixes. Later debits under the
// key must have the same.
type SandboxParticulars struct {
	AgreementID string
	Amount      Amount // in minor units of Currency
	Currency    string // ISO 4217
}

// SandboxOrder requests one debit from the sandbox.
type SandboxOrder struct {
	Key string // the rail key
	SandboxParticulars
}

// SandboxAnswer is the sandbox's answer about one key.
type SandboxAnswer struct {
	Status SandboxStatus
	Reason string        // of SandboxRefused, as the rail words it; else ""
	DueIn  time.Duration // of SandboxUndecided: the delay before asking again, in real time; else 0
	// Held is the debit recorded under the key, for LookupSandbox and CancelSandbox. It is zero if
	// nothing, or only a cancellation, is recorded.
	Held SandboxParticulars
}

// SandboxDebit is an entry of the sandbox's own list. A key cancelled before any debit has no
// particulars.
type SandboxDebit struct {
	SandboxOrder
	Status    SandboxStatus
	Reason    string // of SandboxRefused; else ""
	ChangedAt Millis // service time of the last change
}

// SandboxListQuery selects a page of the successful debits with From <= ChangedAt < To, ordered by
// ChangedAt and then key.
type SandboxListQuery struct {
	From     Millis
	AfterKey string // leaves out debits at From up to this key; "": none
	To       Millis
	Limit    int // maximum number of debits
}

// SandboxList is a page of the sandbox's successful debits. Debits before CompleteFrom may have
// been dropped. Debits that were decided at or after CompleteTo are not listed yet. The list before
// CompleteTo is complete, except as SandboxListDelay says.
type SandboxList struct {
	Debits                   []SandboxDebit
	More                     bool   // further debits follow the page
	CompleteFrom, CompleteTo Millis // in service time
}
