package models

import "time"

// The limits of a batch.
const (
	// MaxBatchRows is the maximum number of rows in a batch.
	MaxBatchRows = 1000
	// SettleWithin is the time from submission to the deadline, by which every row is terminal.
	SettleWithin = 24 * time.Hour
	// LastAttemptBefore is the time before the deadline at which debits stop. Open rows are
	// cancelled from then on.
	LastAttemptBefore = 30 * time.Minute
	// BatchRetention is how long a batch and its reference are kept after submission.
	BatchRetention = 90 * 24 * time.Hour
	// ConfirmWithin is how long after the deadline the service keeps asking the rail about
	// unconfirmed rows.
	ConfirmWithin = RailMemory
	// ChunkRows is the number of rows of a batch that one task handles.
	ChunkRows = 200
)

// Batch is a partner's submission under one batchReference, with its progress.
type Batch struct {
	SiteID          SiteID
	ID              BatchID
	OrganisationID  OrganisationID
	Reference       string // the partner's name for it, unique in the Site for BatchRetention
	Generation      int    // how many batches the reference has named, this one included
	RetryOf         string // the reference of the batch that this batch retries; "" for none
	RetriedAs       string // the reference of the batch that retries this batch; "" for none
	State           BatchState
	Counts          BatchCounts
	TotalAmount     Amount
	SucceededAmount Amount
	Currency        string // ISO 4217
	SubmittedAt     Millis
	SettleBy        Millis // the deadline
	SettledAt       Millis // 0 until settled
	CancelledAt     Millis // 0 unless the partner asked for cancellation
}

// RailKeys returns the key from which the rail keys of the batch's rows derive.
func (b *Batch) RailKeys() BatchKey { return NewBatchKey(b.SiteID, b.Reference, b.Generation) }

// overdue reports whether the batch is open past its deadline.
func (b *Batch) overdue(now Millis) bool { return b.State == BatchInProgress && b.SettleBy <= now }

// BatchCounts counts the batch's rows by state, and its settled rows by success. Failed counts
// every settled row that did not succeed.
type BatchCounts struct {
	Pending, InProgress, Settled, Succeeded, Failed int
}

// Rows returns the number of rows in the batch.
func (c BatchCounts) Rows() int { return c.Pending + c.InProgress + c.Settled }

// BatchRow is one debit of a batch.
type BatchRow struct {
	Index             int // from 0, in submitted order
	CustomerReference string
	RowReference      string
	Amount            Amount
	State             RowState
	Outcome           RowOutcome // "" until settled
	CorrectedOutcome  RowOutcome // "" unless a correction followed settlement
	SettledAt         Millis     // 0 until settled
	Attempts          int        // debit calls made
	NextAttemptAt     Millis     // 0 unless an attempt is planned
}

// NewBatch is a submission whose structure has been validated.
type NewBatch struct {
	SiteID         SiteID
	OrganisationID OrganisationID
	Reference      string
	Rows           []NewRow
	// Fingerprint is the SHA-256 of the canonical form of the body. Equal fingerprints mean equal
	// submissions.
	Fingerprint [32]byte
	// Extras is the canonical JSON of the body's unknown fields; nil if there are none. Extras and
	// rows suffice to name the differences to another submission.
	Extras  []byte
	TraceID TraceID

	retryOf string   // the reference of the batch that this batch retries
	links   []LinkID // links that rows are already bound to, by row; zero, or a nil list: none
}

// NewRow is one row of a submission.
type NewRow struct {
	CustomerReference string
	RowReference      string
	Amount            Amount
}

// NewRetry asks for a new batch of the retryable rows of a settled batch.
type NewRetry struct {
	SiteID         SiteID
	OrganisationID OrganisationID
	Parent         string // the reference of the settled batch
	Reference      string // of the new batch
	TraceID        TraceID
}

// fingerprint returns the fingerprint of the submission that a retry makes. It differs from that of
// every submitted body.
func (n *NewRetry) fingerprint() [32]byte { return digest("retry", n.Parent, n.Reference) }

// Total returns the sum of the rows' amounts, or ErrAmountOverflow.
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

// Submission is the result of submitting a NewBatch. Exactly one of three cases holds: the batch
// was created (Tasks names the work to dispatch), an identical batch was replayed, or a different
// batch has the reference.
type Submission struct {
	Batch    Batch // created or replayed; zero on a conflict
	Tasks    []TaskID
	Replayed bool
	Conflict *StoredSubmission
}

// IsNew reports whether a batch was stored.
func (d *Submission) IsNew() bool { return !d.Replayed && d.Conflict == nil }

// StoredSubmission is an earlier submission under the same reference, reduced to what a comparison
// needs.
type StoredSubmission struct {
	Rows   []NewRow
	Extras []byte
}
