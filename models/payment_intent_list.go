package models

// IntentPosition is an intent's position in the list, by CreatedAt.
type IntentPosition = Position[PaymentIntentID]

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

// IntentPage is one page of the list: intents in effective state, without a total.
type IntentPage = Page[PaymentIntent, PaymentIntentID]

// isOverdue reports whether the intent is past its expiry and not ended yet.
func (p *PaymentIntent) isOverdue(now Millis) bool {
	return p.State == IntentCreated && p.ExpiresAt <= now
}

// effective returns the intent in its effective state at a time, recorded or not.
func (p PaymentIntent) effective(now Millis) PaymentIntent {
	if p.isOverdue(now) {
		p.State, p.Status = IntentFinal, TransactionExpired
	}
	return p
}
