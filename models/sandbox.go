package models

import (
	"errors"
	"time"
)

// Behaviour is how a sandbox account answers debits. The sign-up chooses it.
type Behaviour string

// The behaviours, as on the wire.
const (
	BehaviourPays               Behaviour = "pays"
	BehaviourInsufficientFunds  Behaviour = "insufficientFunds"
	BehaviourAccountUnavailable Behaviour = "accountUnavailable"
	BehaviourLimitExceeded      Behaviour = "limitExceeded"
	BehaviourDeclines           Behaviour = "declines"   // the customer declines
	BehaviourSlow               Behaviour = "slow"       // pays after SandboxSlowness
	BehaviourBankDown           Behaviour = "bankDown"   // unavailable for SandboxBankDownFor after sign-up, then pays
	BehaviourAnswerLost         Behaviour = "answerLost" // pays, and loses the first answer of each key
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
	// exceeds the time that a statement may take, so that an earlier debit cannot appear later. A
	// commit is an exception: while it waits for a synchronous standby, no time-out ends it, and
	// its debits may join the list before CompleteTo. Production does not use the sandbox.
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

// SandboxStatus is the state that the sandbox records under a key, or an answer that it never
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
	SandboxBankIsDown SandboxStatus = "bankIsDown" // nothing recorded; a debit may come again
	SandboxLost       SandboxStatus = "lost"       // recorded, and the answer is lost on its way
	SandboxConflict   SandboxStatus = "conflict"   // recorded with another agreement, amount or currency
)

// SandboxParticulars are the values that a debit's key fixes.
type SandboxParticulars struct {
	AgreementID string
	Amount      Amount
	Currency    string
}

// SandboxOrder requests one debit from the sandbox.
type SandboxOrder struct {
	Key string
	SandboxParticulars
}

// SandboxAnswer is the sandbox's answer about one key.
type SandboxAnswer struct {
	Status SandboxStatus
	Reason string        // of a refusal, as the rail words it
	DueIn  time.Duration // of an undecided debit: the delay before asking again, in real time
	// Held is the debit recorded under the key, for LookupSandbox and CancelSandbox. It is zero if
	// nothing, or only a cancellation, is recorded.
	Held SandboxParticulars
}

// SandboxDebit is an entry of the sandbox's own list. A key cancelled before any debit has no
// particulars.
type SandboxDebit struct {
	SandboxOrder
	Status    SandboxStatus
	Reason    string // of a refusal
	ChangedAt Millis // service time of the last change
}

// SandboxListQuery selects a page of the successful debits with From <= ChangedAt < To, by time and
// key. AfterKey, unless "", leaves out those at From whose key is not greater.
type SandboxListQuery struct {
	From     Millis
	AfterKey string
	To       Millis
	Limit    int
}

// SandboxList is a page of the sandbox's successful debits. Debits before CompleteFrom may have
// been dropped. Debits that were decided at or after CompleteTo are not listed yet. No debit that
// was decided before it joins the list later, except as SandboxListDelay says.
type SandboxList struct {
	Debits                   []SandboxDebit
	More                     bool
	CompleteFrom, CompleteTo Millis
}
