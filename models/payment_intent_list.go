package models

// IntentPosition is a payment intent's place in the list. A page holds the intents beyond it, never the intent itself. The
// zero position is the beginning of the list going forward, and its end going backward.
type IntentPosition struct {
	CreatedAt Millis
	ID        PaymentIntentID
}

func (p *PaymentIntent) position() IntentPosition { return IntentPosition{p.CreatedAt, p.ID} }

// IntentQuery asks for one page of a Site's payment intents, ordered by CreatedAt and then ID, newest first.
type IntentQuery struct {
	SiteID      SiteID
	OrderID     string            // "": all
	State       IntentState       // effective; "": all
	Status      TransactionStatus // effective; "": all
	CreatedFrom *Millis           // inclusive; nil: no bound
	CreatedTo   *Millis           // inclusive; nil: no bound
	Direction   Direction
	From        IntentPosition
	Limit       int // intents at most, 1 to 100
}

// IntentPage is one page, and what was true of the list at that moment.
type IntentPage struct {
	Intents []PaymentIntent // in effective state, newest first
	Next    *IntentPosition // where the next page (Forward) begins; nil on the last page
	Prev    *IntentPosition // where the page before (Backward) begins; nil on the first page
	Now     Millis          // service time of that moment
}

// isOverdue reports whether the intent's time is over though nothing has ended it.
func (p *PaymentIntent) isOverdue(now Millis) bool {
	return p.State == IntentCreated && p.ExpiresAt <= now
}

// effective is the intent as it is at a time, whether or not that is written down.
func (p PaymentIntent) effective(now Millis) PaymentIntent {
	if p.isOverdue(now) {
		p.State, p.Status = IntentFinal, TransactionExpired
	}
	return p
}
