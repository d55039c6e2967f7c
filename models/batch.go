package models

import "time"

// The limits of a batch.
const (
	// MaxBatchRows is the maximum number of rows in a batch.
	MaxBatchRows = 1000
	// SettleWithin is the time from submission to the deadline, by which every row is settled.
	SettleWithin = 24 * time.Hour
	// LastAttemptBefore is how long before the deadline debits stop. From then on no debit begins,
	// and the service closes the rows that are still open.
	LastAttemptBefore = 30 * time.Minute
	// BatchRetention is how long a batch and its reference are kept after submission.
	BatchRetention = 90 * 24 * time.Hour
	// ConfirmWithin is how long after the deadline the service keeps asking the rail about
	// unconfirmed rows.
	ConfirmWithin = RailMemory
	// ChunkRows is the number of rows of a batch that one task handles.
	ChunkRows = 200
)

// Batch is a partner's list of debits under one batchReference, with its progress. Its rows are
// read separately.
type Batch struct {
	SiteID          SiteID
	ID              BatchID
	OrganisationID  OrganisationID
	Reference       string // the batchReference, unique in the Site for BatchRetention
	Generation      int    // how many batches the reference has named, this one included
	RetryOf         string // the reference of the batch that this batch retries; "" for none
	RetriedAs       string // the reference of the batch that retries this batch; "" for none
	State           BatchState
	Counts          BatchCounts
	TotalAmount     Amount // of all rows
	SucceededAmount Amount // of the rows that Counts.Succeeded counts
	Currency        string // ISO 4217
	SubmittedAt     Millis // service time, as all times of a batch
	SettleBy        Millis // the deadline
	SettledAt       Millis // 0 until settled
	CancelledAt     Millis // 0 unless the partner asked for cancellation
}

// RailKeys returns the batch's key, from which the rail keys of its rows derive.
func (b *Batch) RailKeys() BatchKey { return NewBatchKey(b.SiteID, b.Reference, b.Generation) }

// overdue reports whether the batch is still open at now, at or past its deadline.
func (b *Batch) overdue(now Millis) bool { return b.State == BatchInProgress && b.SettleBy <= now }

// BatchCounts counts a batch's rows by state, and its settled rows by success. Failed counts every
// settled row that did not succeed. A correction of a settled row changes no count.
type BatchCounts struct {
	Pending, InProgress, Settled, Succeeded, Failed int
}

// Rows returns the number of rows in the batch.
func (c BatchCounts) Rows() int { return c.Pending + c.InProgress + c.Settled }

// BatchRow is one debit of a batch.
type BatchRow struct {
	Index             int    // from 0, in submitted order
	CustomerReference string // of the customer to debit
	RowReference      string // the partner's name for the row
	Amount            Amount
	State             RowState
	Outcome           RowOutcome // "" until settled
	CorrectedOutcome  RowOutcome // the true outcome, if learned after settlement; else ""
	SettledAt         Millis     // 0 until settled
	Attempts          int        // debit calls made
	NextAttemptAt     Millis     // of the next try; 0: none is planned, or it is due at once
}

// NewBatch is a batch to submit. Its structure has been validated.
type NewBatch struct {
	SiteID         SiteID
	OrganisationID OrganisationID
	Reference      string
	Rows           []NewRow
	// Fingerprint is the SHA-256 of the canonical form of the body. Equal fingerprints mean equal
	// submissions.
	Fingerprint [32]byte
	// Extras is the canonical JSON of the body's unknown fields; nil if there are none. Two
	// different bodies differ in their rows or their Extras.
	Extras  []byte
	TraceID TraceID

	retryOf string   // the reference of the batch that this batch retries; "" for none
	links   []LinkID // by row, the link that the row is bound to already; zero, or a nil list: none
}

// NewRow is one row of a submission.
type NewRow struct {
	CustomerReference string
	RowReference      string
	Amount            Amount
}

// NewRetry asks for a new batch that repeats the retryable rows of a settled batch.
type NewRetry struct {
	SiteID         SiteID
	OrganisationID OrganisationID
	Parent         string // the reference of the settled batch
	Reference      string // of the new batch
	TraceID        TraceID
}

// fingerprint returns the Fingerprint of the NewBatch that the retry makes. No submitted body has
// the same fingerprint.
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

// Submission is the result of submitting a NewBatch or a NewRetry. Exactly one of three cases
// holds: the batch was created, an identical earlier batch was found (Replayed), or a different
// batch has the reference (Conflict).
type Submission struct {
	Batch    Batch             // created or replayed; zero on a conflict
	Tasks    []TaskID          // of a created batch, to dispatch
	Replayed bool              // the same submission had created the batch before
	Conflict *StoredSubmission // the different batch; nil unless there is one
}

// IsNew reports whether the submission created a batch.
func (d *Submission) IsNew() bool { return !d.Replayed && d.Conflict == nil }

// StoredSubmission is an earlier submission under the same reference, reduced to what a comparison
// needs.
type StoredSubmission struct {
	Rows    []NewRow
	Extras  []byte
	RetryOf string // the reference of the batch that this one retries; "" if a partner submitted it
}
