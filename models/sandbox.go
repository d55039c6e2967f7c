package models

import (
	"errors"
	"time"
)

// Behaviour is how a sandbox account answers debits, chosen when its customer signs up.
type Behaviour string

// The behaviours, in the words of the wire.
const (
	BehaviourPays               Behaviour = "pays"
	BehaviourInsufficientFunds  Behaviour = "insufficientFunds"
	BehaviourAccountUnavailable Behaviour = "accountUnavailable"
	BehaviourLimitExceeded      Behaviour = "limitExceeded"
	BehaviourDeclines           Behaviour = "declines"   // the customer says no
	BehaviourSlow               Behaviour = "slow"       // answers after SandboxSlowness, then pays
	BehaviourBankDown           Behaviour = "bankDown"   // unavailable for SandboxBankDownFor after sign-up, then pays
	BehaviourAnswerLost         Behaviour = "answerLost" // pays, and the answer is lost the first time
)

// Behaviours lists every behaviour, the usual one first.
var Behaviours = []Behaviour{
	BehaviourPays, BehaviourInsufficientFunds, BehaviourAccountUnavailable, BehaviourLimitExceeded, BehaviourDeclines,
	BehaviourSlow, BehaviourBankDown, BehaviourAnswerLost,
}

// The times of the sandbox's accounts.
const (
	// SandboxSlowness is how long a slow account takes to answer, in real time: moving the clock hurries no bank.
	SandboxSlowness = 2 * time.Second
	// SandboxBankDownFor is how long the bank of a bankDown account is unavailable from sign-up, in service time.
	SandboxBankDownFor = 30 * time.Second
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

// SandboxStatus is what the sandbox has recorded about a key, or answers about one it has not recorded.
type SandboxStatus string

// The first four are recorded; of these, an undecided debit becomes succeeded with the first question asked after its
// time, unless it is cancelled before, and the others are final. The rest are answers only.
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

// SandboxParticulars are the values of a debit that its key fixes.
type SandboxParticulars struct {
	AgreementID string
	Amount      Amount
	Currency    string
}

// SandboxOrder asks the sandbox for one debit.
type SandboxOrder struct {
	Key string
	SandboxParticulars
}

// SandboxAnswer is the sandbox's word on one key.
type SandboxAnswer struct {
	Status SandboxStatus
	Reason string        // of a refusal, in the words of the rail
	DueIn  time.Duration // of an undecided debit: how long to wait before asking again, in real time
	// Held is what the key holds, of LookupSandbox and CancelSandbox. It is zero if nothing is recorded under the key, or
	// only a cancellation.
	Held SandboxParticulars
}

// SandboxDebit is an entry of the sandbox's own list. A key that was cancelled before any debit came has no
// particulars.
type SandboxDebit struct {
	SandboxOrder
	Status    SandboxStatus
	Reason    string // of a refusal
	DecidedAt Millis // service time of the last change
}
