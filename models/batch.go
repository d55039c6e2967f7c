package models

import "time"

// The limits of a batch.
const (
	// MaxBatchRows is the most rows that a batch holds.
	MaxBatchRows = 1000
	// SettleWithin is the time from submission in which every row becomes terminal.
	SettleWithin = 24 * time.Hour
	// LastAttemptBefore is how long before the deadline the last debit may begin; what is open then is cancelled.
	LastAttemptBefore = 30 * time.Minute
	// BatchRetention is how long a batch and its reference are kept from submission.
	BatchRetention = 90 * 24 * time.Hour
	// ConfirmWithin is how long after the deadline the rail is still asked about unconfirmed rows.
	ConfirmWithin = RailMemory
	// ChunkRows is how many rows of a batch one task handles.
	ChunkRows = 200
)

// Batch is what a partner submitted under one batchReference, and how far it is.
type Batch struct {
	SiteID          SiteID
	ID              BatchID
	OrganisationID  OrganisationID
	Reference       string // the partner's name for it, unique in the Site for BatchRetention
	Generation      int    // how many batches the reference has named, this one included
	RetryOf         string // the reference of the batch whose rows this one retries; "" for none
	RetriedAs       string // the reference of the batch that retries this one's rows; "" for none
	State           BatchState
	Counts          BatchCounts
	TotalAmount     Amount
	SucceededAmount Amount
	Currency        string // ISO 4217
	SubmittedAt     Millis
	SettleBy        Millis
	SettledAt       Millis // 0 until settled
	CancelledAt     Millis // 0 unless the partner asked for cancellation
}

// RailKeys is what the rail keys of the batch's rows derive from.
func (b *Batch) RailKeys() BatchKey { return NewBatchKey(b.SiteID, b.Reference, b.Generation) }

// overdue reports whether the batch is open though its deadline has come.
func (b *Batch) overdue(now Millis) bool { return b.State == BatchInProgress && b.SettleBy <= now }

// BatchCounts are the batch's rows by state, and its settled rows by success. Failed is every settled row that did not
// succeed.
type BatchCounts struct {
	Pending, InProgress, Settled, Succeeded, Failed int
}

// Rows is the number of rows in the batch.
func (c BatchCounts) Rows() int { return c.Pending + c.InProgress + c.Settled }

// BatchRow is one debit of a batch.
type BatchRow struct {
	Index             int // from 0, in submitted order
	CustomerReference string
	RowReference      string
	Amount            Amount
	State             RowState
	Outcome           RowOutcome // "" until settled
	CorrectedOutcome  RowOutcome // "" unless the truth came after the row was settled
	SettledAt         Millis     // 0 until settled
	Attempts          int        // debit calls made
	NextAttemptAt     Millis     // 0 unless one is planned
}

// NewBatch is a submission whose structure has been checked.
type NewBatch struct {
	SiteID         SiteID
	OrganisationID OrganisationID
	Reference      string
	Rows           []NewRow
	// Fingerprint is the SHA-256 of the canonical form of the body. Equal fingerprints are the same submission.
	Fingerprint [32]byte
	// Extras is the canonical JSON of what the body had beyond the known fields, nil if nothing. With the rows it is
	// all that naming the changed places of another submission needs.
	Extras  []byte
	TraceID TraceID
	// Claim bounds the tasks that the submission claims for its caller to dispatch, as ClaimTasks would. Zero: none.
	Claim Dispatch

	retryOf string   // the reference of the batch whose rows this one retries; "" for none
	links   []LinkID // that the rows are bound to already, one a row; zero, or a nil list: none
}

// NewRow is one row of a submission.
type NewRow struct {
	CustomerReference string
	RowReference      string
	Amount            Amount
}

// NewRetry asks for a batch of those rows of a settled one that may succeed later.
type NewRetry struct {
	SiteID         SiteID
	OrganisationID OrganisationID
	Parent         string // the reference of the settled batch
	Reference      string // of the new one
	TraceID        TraceID
	Claim          Dispatch // as of NewBatch
}

// fingerprint is that of the submission that a retry makes. No body of a submission has it.
func (n *NewRetry) fingerprint() [32]byte { return digest("retry", n.Parent, n.Reference) }

// Total is the sum of the rows' amounts, or ErrAmountOverflow.
func (b NewBatch) Total() (Amount, error) {
	var total Amount
	for _, r := range b.Rows {
		var err error
		if total, err = total.Add(r.Amount); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// Submission is what became of a NewBatch. Exactly one of three things happened: it was created (Tasks names the
// work to dispatch), it replayed an identical earlier one, or it conflicts with a different earlier one.
type Submission struct {
	Batch    Batch // without rows; of the earlier one on a replay
	Tasks    []TaskID
	Claimed  []Task // those of Tasks that the caller must dispatch: nobody else does before ClaimLease is over
	Replayed bool
	Conflict *StoredSubmission
}

// IsNew reports whether a batch was stored.
func (d *Submission) IsNew() bool { return !d.Replayed && d.Conflict == nil }

// StoredSubmission is an earlier submission under the same reference, as far as a comparison needs it.
type StoredSubmission struct {
	Rows   []NewRow
	Extras []byte
}
