package models

import "time"

// DebitPhase says which calls of the rail may still be made for a batch's open rows. Only time
// advances the phase.
type DebitPhase string

// The phases of a batch's debits.
const (
	// PhaseAttempt: debits may begin.
	PhaseAttempt DebitPhase = "attempt"
	// PhaseClose: no debit begins; open rows are cancelled on the rail.
	PhaseClose DebitPhase = "close"
	// PhaseConfirm: every row is settled; the rail is asked about unconfirmed rows.
	PhaseConfirm DebitPhase = "confirm"
)

// Chunk is the part of a batch that one task handles, as a worker has claimed it. Rows holds the
// claimed rows only.
type Chunk struct {
	Task           TaskID
	SiteID         SiteID
	OrganisationID OrganisationID
	BatchID        BatchID
	TraceID        TraceID
	Currency       string
	BatchReference string
	Generation     int // of the reference
	Phase          DebitPhase
	Cancelled      bool // the partner or an operator has cancelled the batch: no debit may begin
	Paused         bool // an operator has paused the organisation's debits: no debit may begin now
	// Certain says that the database cannot have lost commits of the batch: a row without a debit
	// call may be closed without asking the rail.
	Certain   bool
	Epoch     int    // of the database, at the claim
	ClaimedAt Millis // service time of the claim
	Lease     LeaseToken
	Rows      []ClaimedRow
	// Open is the number of the chunk's rows that needed work at the claim, claimed or not. Only
	// the claim of the chunk's first part sets it; it is 0 for other parts.
	Open int
}

// Part is a range of rows of a chunk, which one call of ClaimChunk claims.
type Part struct {
	First int // row of the chunk, from 0
	Rows  int // at most; fewer at the end of the chunk
}

// LeaseToken identifies the holder of a lease, such as one run of a task. A holder that finds
// another token on its row, payment intent or event has lost the lease.
type LeaseToken = ID[leaseNoun]

type leaseNoun struct{}

func (leaseNoun) prefix() string { return "lease" }

// NewLeaseToken returns a new token for one run of a task.
func NewLeaseToken() LeaseToken { return NewID[leaseNoun]() }

// ClaimedRow is a row that a worker has claimed.
type ClaimedRow struct {
	Index             int
	CustomerReference string
	RailKey           string
	Amount            Amount
	// InDoubt says that an earlier debit call may lack its answer: before a debit, the rail must be
	// asked about that call.
	InDoubt bool
	// Settled says that the row is settled as unconfirmed: the rail's answer corrects it.
	Settled bool
	// CalledBefore says that a debit call of the row was made before this claim. If InDoubt is set,
	// CalledBefore may be false although one call was made.
	CalledBefore bool
	// Forgotten says that RailMemory has passed since the last call. The rail may have dropped the
	// key, so its answer "never seen" proves nothing.
	Forgotten bool
	// Deferrals is the number of tries so far without a final answer.
	Deferrals int
	Account   DebitAccount
}

// Eligibility is what decides whether the debit of a claimed row may begin, as last read.
type Eligibility struct {
	Phase     DebitPhase
	Cancelled bool // by the partner or an operator
	Paused    bool // by an operator; the row waits
	Account   DebitAccount
}

// MayDebit reports whether a debit may begin.
func (e *Eligibility) MayDebit() bool {
	return e.Phase == PhaseAttempt && !e.Cancelled && !e.Paused && e.Account.Linked && !e.Account.Unreadable
}

// DebitAccount is the account that a debit charges, as last read. For a row of a batch it is the
// account of the row's customer link.
type DebitAccount struct {
	LinkID      LinkID // zero: no link
	Linked      bool   // the customer is linked; true for a payment
	CustomerID  string
	AgreementID string // identifies the account to the rail
	// Unreadable says that the sealed customer and agreement cannot be opened, as when this process
	// lacks the master key that sealed them. Then CustomerID and AgreementID are "".
	Unreadable bool
}

// RowResult is a worker's result for a row that it claimed. Exactly one of three cases holds:
// Outcome is final; Release is set; or neither, and the row is still in doubt.
type RowResult struct {
	Index   int
	RailKey string
	Outcome RowOutcome // "" if not final
	// FromRail says that the outcome follows from the rail's answer about the key. Such an outcome
	// holds even if the database has lost commits since the claim.
	FromRail bool
	// Release says that nothing was debited, and that the row may be tried again.
	Release bool
	// Answered says that the rail answered a call about the key.
	Answered bool
	// Confirming says that the row was settled as unconfirmed when it was claimed.
	Confirming bool
	// Alert is the kind of alert that the result raises; "" for none.
	Alert string
	// RetryAfter is the delay until the row is due again, if the result is not final.
	RetryAfter time.Duration
	// Calls corrects the row's count of debit calls, which the claim of a pending row raises by one
	// in advance. It is −1 if no call was made, and +1 for a call on a row claimed in doubt.
	Calls int
}

// SettledRow is a row that FinishRows has settled or corrected.
type SettledRow struct {
	Index     int
	Outcome   RowOutcome
	Corrected bool // the row was settled before, with another outcome
}
