package models

// BatchPosition is a batch's position in the list of batches, by SubmittedAt and ID.
type BatchPosition = Position[BatchID]

func (b *Batch) position() BatchPosition { return BatchPosition{b.SubmittedAt, b.ID} }

// BatchQuery asks for one page of a Site's batches, ordered by SubmittedAt and then ID, newest
// first.
type BatchQuery struct {
	SiteID        SiteID
	State         BatchState    // "": all
	SubmittedFrom *Millis       // inclusive; nil: no bound
	SubmittedTo   *Millis       // inclusive; nil: no bound
	Direction     Direction     // of the page, seen from At
	At            BatchPosition // exclusive; zero: see Position
	Limit         int           // batches at most, 1 to 100
}

// BatchPage is one page of the list. Its batches have their current counts of rows.
type BatchPage = Page[Batch, BatchID]
