package models

// IntentPosition is an intent's position in the list. A page holds the intents beyond its position.
// The zero position is the beginning of the list going forward, and its end going backward.
type IntentPosition struct {
	CreatedAt Millis
	ID        PaymentIntentID
}

func (p *PaymentIntent) position() IntentPosition { return IntentPosition{p.CreatedAt, p.ID} }

// IntentQuery asks for one page of a Site's payment intents, ordered by CreatedAt and then ID,
// newest first.
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

// IntentPage is one page of the list, with the service time of its snapshot.
type IntentPage struct {
	Intents []PaymentIntent // in effective state, newest first
	Next    *IntentPosition // where the next page (Forward) begins; nil on the last page
	Prev    *IntentPosition // where the page before (Backward) begins; nil on the first page
	Now     Millis          // service time of that moment
}

// isOverdue reports whether the intent is past its expiry and not ended yet.
func (p *PaymentIntent) isOverdue(now Millis) bool {
	return p.State == IntentCreated && p.ExpiresAt <= now
}

// effective is the intent in its effective state at a time, recorded or not.
func (p PaymentIntent) effective(now Millis) PaymentIntent {
	if p.isOverdue(now) {
		p.State, p.Status = IntentFinal, TransactionExpired
	}
	return p
}
