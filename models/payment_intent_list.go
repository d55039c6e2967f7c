package models

// IntentPosition is an intent's position in the list, by CreatedAt and ID.
type IntentPosition = Position[PaymentIntentID]

func (p *PaymentIntent) position() IntentPosition { return IntentPosition{p.CreatedAt, p.ID} }

// IntentQuery asks for one page of a Site's payment intents, ordered by CreatedAt and then ID,
// newest first. State and Status select by effective state: an intent that no customer has begun to
// pay counts as expired from its expiry, even before a statement has recorded that.
type IntentQuery struct {
	SiteID      SiteID
	OrderID     string            // "": all
	State       IntentState       // "": all
	Status      TransactionStatus // "": all
	CreatedFrom *Millis           // inclusive; nil: no bound
	CreatedTo   *Millis           // inclusive; nil: no bound
	Direction   Direction
	At          IntentPosition // the page holds the intents that follow it in Direction
	Limit       int            // maximum number of intents on the page, 1 to 100
}

// IntentPage is one page of the list, with intents in their effective states. Total is always 0.
type IntentPage = Page[PaymentIntent, PaymentIntentID]

// isOverdue reports whether the intent is past its expiry, but stored as created. A pending intent
// does not expire.
func (p *PaymentIntent) isOverdue(now Millis) bool {
	return p.State == IntentCreated && p.ExpiresAt <= now
}

// effective returns the intent in its effective state: an overdue intent as expired, even before a
// statement has recorded that.
func (p PaymentIntent) effective(now Millis) PaymentIntent {
	if p.isOverdue(now) {
		p.State, p.Status = IntentFinal, TransactionExpired
	}
	return p
}
