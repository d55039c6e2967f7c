package models

// WebhookFilter selects events of an organisation. Zero fields match every event.
type WebhookFilter struct {
	Status          WebhookStatus
	Type            WebhookEventType
	SiteID          SiteID
	PaymentIntentID PaymentIntentID
	From, To        *Millis // of CreatedAt, both inclusive
}

// WebhookPosition is an event's position in the list. A page holds the events beyond its position.
// The zero position is the beginning of the list going forward, and its end going backward.
type WebhookPosition struct {
	CreatedAt Millis
	ID        WebhookEventID
}

func (e *WebhookEvent) position() WebhookPosition { return WebhookPosition{e.CreatedAt, e.ID} }

// WebhookQuery asks for one page of an organisation's events, ordered by CreatedAt and then ID,
// newest first.
type WebhookQuery struct {
	OrganisationID OrganisationID
	Filter         WebhookFilter
	Direction      Direction
	From           WebhookPosition
	Limit          int // events at most, 1 to 100
}

// WebhookPage is one page of the list, with figures of the whole list from the same snapshot.
type WebhookPage struct {
	Now    Millis           // when the page was read
	Events []WebhookEvent   // newest first, without bodies
	Total  int64            // all events that match
	Next   *WebhookPosition // where the next page (Forward) begins; nil on the last page
	Prev   *WebhookPosition // where the page before (Backward) begins; nil on the first page
}

// newWebhookPage makes a page from the events found in the query's direction: in list order, one
// more than the limit if there are more. behind reports whether events exist on the other side of
// the position.
func newWebhookPage(q *WebhookQuery, found []WebhookEvent, behind bool) WebhookPage {
	page := WebhookPage{Events: found}
	ahead := len(found) > q.Limit
	if ahead && q.Direction == Backward {
		page.Events = found[1:]
	} else if ahead {
		page.Events = found[:q.Limit]
	}
	next, prev := ahead, behind
	if q.Direction == Backward {
		next, prev = behind, ahead
	}
	var first, last WebhookPosition
	if n := len(page.Events); n > 0 {
		first, last = page.Events[0].position(), page.Events[n-1].position()
	}
	if next {
		page.Next = &last
	}
	if prev {
		page.Prev = &first
	}
	return page
}
