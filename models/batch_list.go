package models

// BatchPosition is a batch's position in the list of batches. A page holds the batches beyond its
// position. The zero position is the beginning of the list going forward, and its end going
// backward.
type BatchPosition struct {
	SubmittedAt Millis
	ID          BatchID
}

func (b *Batch) position() BatchPosition { return BatchPosition{b.SubmittedAt, b.ID} }

// BatchQuery asks for one page of a Site's batches, ordered by SubmittedAt and then ID, newest
// first.
type BatchQuery struct {
	SiteID        SiteID
	State         BatchState // "": all
	SubmittedFrom *Millis    // inclusive; nil: no bound
	SubmittedTo   *Millis    // inclusive; nil: no bound
	Direction     Direction
	From          BatchPosition
	Limit         int // batches at most, 1 to 100
}

// BatchPage is one page of the list, with figures of the whole list from the same snapshot.
type BatchPage struct {
	Batches []Batch        // newest first, with exact counts
	Total   int64          // all batches that match
	Next    *BatchPosition // where the next page (Forward) begins; nil on the last page
	Prev    *BatchPosition // where the page before (Backward) begins; nil on the first page
	Now     Millis         // service time of that moment
}
