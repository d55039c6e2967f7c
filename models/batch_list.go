package models

// BatchPosition is a batch's position in the list of batches, by SubmittedAt and ID.
type BatchPosition = Position[BatchID]

// position returns the batch's position in the list.
func (b *Batch) position() BatchPosition { return BatchPosition{b.SubmittedAt, b.ID} }

// BatchQuery asks for one page of a Site's batches, ordered by SubmittedAt and then ID, newest
// first.
type BatchQuery struct {
	SiteID        SiteID
	State         BatchState    // "": all; a batch past its deadline counts as settled
	SubmittedFrom *Millis       // inclusive; nil: no bound
	SubmittedTo   *Millis       // inclusive; nil: no bound
	Direction     Direction     // of the page, seen from At
	At            BatchPosition // the page begins after it; zero: at an end, see Position
	Limit         int           // the maximum number of batches, 1 to 100
}

// BatchPage is one page of a Site's batches, with the current counts of their rows.
type BatchPage = Page[Batch, BatchID]
