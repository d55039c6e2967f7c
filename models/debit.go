package models

import "time"

// DebitPhase is what may still be done for the open rows of a batch; time alone moves it on.
type DebitPhase string

// The phases of a batch's debits.
const (
	// PhaseAttempt: debits may begin.
	PhaseAttempt DebitPhase = "attempt"
	// PhaseClose: no debit begins any more; what is open is cancelled on the rail.
	PhaseClose DebitPhase = "close"
	// PhaseConfirm: every row is settled; the rail is asked about the unconfirmed ones.
	PhaseConfirm DebitPhase = "confirm"
)

// Chunk is the part of a batch that one task handles, with the rows of it that its worker has claimed.
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
	Cancelled      bool // no debit may begin: the partner asked for cancellation, or an operator after a restore
	// Certain says that no loss of the database can matter to the batch: a row that no debit call was begun for may be
	// closed without asking the rail.
	Certain   bool
	Epoch     int    // of the database, at the claim
	ClaimedAt Millis // service time of the claim
	Lease     LeaseToken
	Rows      []ClaimedRow
	// Open counts the whole chunk's rows that needed work when it was claimed, claimed or not. It is counted for the chunk's first
	// part, and 0 for the others.
	Open int
}

// Part is a part of a chunk.
type Part struct {
	First int // row of the chunk, from 0
	Rows  int // at most; the last ones may have been settled
}

// LeaseToken proves that its holder has claimed rows, and that nobody has taken them over since.
type LeaseToken = ID[leaseNoun]

type leaseNoun struct{}

func (leaseNoun) prefix() string { return "lease" }

// NewLeaseToken makes a token of its own for one run of a task.
func NewLeaseToken() LeaseToken { return NewID[leaseNoun]() }

// ClaimedRow is a row that a worker has claimed.
type ClaimedRow struct {
	Index             int
	CustomerReference string
	RailKey           string
	Amount            Amount
	// InDoubt says that an earlier worker may have made a debit call whose answer is not known: the rail must be
	// asked before anything else.
	InDoubt bool
	// Settled says that the row is settled as unconfirmed: what the rail says now corrects it.
	Settled bool
	// Called says that a debit call of the row was made before this claim.
	Called bool
	// Forgotten says that RailMemory is over since the last call: that the rail has never seen the key proves nothing.
	Forgotten bool
	// Deferrals counts the tries so far that brought no final answer.
	Deferrals int
	Account   DebitAccount
}

// Eligibility is what decides whether a debit of a claimed row may begin, as it was when last read.
type Eligibility struct {
	Phase     DebitPhase
	Cancelled bool // by the partner
	Account   DebitAccount
}

// MayDebit reports whether a debit may begin.
func (e *Eligibility) MayDebit() bool {
	return e.Phase == PhaseAttempt && !e.Cancelled && e.Account.Linked
}

// DebitAccount is whom a row debits: the link it is bound to, as it was when last read.
type DebitAccount struct {
	LinkID      LinkID // zero: no link to bind to
	Linked      bool   // the link is linked
	CustomerID  string
	AgreementID string
}

// RowResult is what a worker has learnt about a row that it claimed. Exactly one of three things: a final outcome;
// Release, nothing was debited and the row may be tried again; or neither, it is still in doubt.
type RowResult struct {
	Index   int
	RailKey string
	Outcome RowOutcome // "" if not final
	// FromRail says that the outcome follows from what the rail said about the key, and so holds whatever the database
	// has lost since the claim.
	FromRail bool
	Release  bool
	// Called says that the rail answered a call about the key.
	Called bool
	// Confirming says that the row was settled as unconfirmed when it was claimed.
	Confirming bool
	// Alert is the kind of alert that the result raises; "" for none.
	Alert string
	// RetryAfter is the time until the row is due again, if it is not final.
	RetryAfter time.Duration
	// Calls corrects the count of debit calls, which the claim of a pending row has raised by one: −1 if none was
	// made after all, +1 for a call on a row that came in doubt.
	Calls int
}

// Settled is what a finishing transaction did with a row.
type Settled struct {
	Index     int
	Outcome   RowOutcome
	Corrected bool // the row had been settled before with another outcome
}
