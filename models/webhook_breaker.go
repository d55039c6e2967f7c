package models

import "time"

// The breaker's measures.
const (
	// WebhookFirstWidth is how many deliveries at once an endpoint gets that nothing is known of.
	WebhookFirstWidth = 4
	// WebhookFullWidth is how many deliveries at once a healthy endpoint gets, over the whole fleet.
	WebhookFullWidth = 32
	// WebhookOpensAfter is how many failures in a row open the breaker.
	WebhookOpensAfter = 10
	// WebhookOpenFor is how long nothing is sent after that. Every probe that fails doubles it, up to WebhookOpenAtMost.
	WebhookOpenFor    = 30 * time.Second
	WebhookOpenAtMost = 10 * time.Minute
	// WebhookGoneFor is how long an endpoint answers nothing but 410 before it is disabled.
	WebhookGoneFor = 24 * time.Hour
)

// WebhookBreaker keeps a dead endpoint from wasting the fleet's time, and a recovering one from being run over. An endpoint
// gets Width deliveries at once: one more for each success, half after a failure. After WebhookOpensAfter failures in a
// row its events wait until OpenUntil; then they are tried one at a time, and the first success starts with two. Times
// are service time.
type WebhookBreaker struct {
	Failures  int    // in a row
	OpenUntil Millis // 0: closed
	Openings  int    // since deliveries last went at full width
	Width     int    // deliveries at once, 1 to WebhookFullWidth
	GoneSince Millis // the first 410 of an unbroken row; 0: none
}

// newWebhookBreaker is that of an endpoint that nothing is known of.
func newWebhookBreaker() WebhookBreaker { return WebhookBreaker{Width: WebhookFirstWidth} }

// healthy says that a success changes nothing.
func (b WebhookBreaker) healthy() bool { return b == WebhookBreaker{Width: WebhookFullWidth} }

// room is how many more deliveries may begin at a time while some are under way.
func (b WebhookBreaker) capacity(inFlight int, now Millis) int {
	switch {
	case b.OpenUntil == 0:
		return max(0, b.Width-inFlight)
	case now < b.OpenUntil || inFlight > 0:
		return 0
	default:
		return 1
	}
}

// after is the breaker after an attempt. gone says that the answer was 410.
func (b WebhookBreaker) after(success, gone bool, now Millis) WebhookBreaker {
	switch {
	case success && b.OpenUntil != 0:
		return WebhookBreaker{Width: 2, Openings: b.Openings}
	case success:
		b.Width = min(WebhookFullWidth, b.Width+1)
		b.Failures, b.GoneSince = 0, 0
		if b.Width == WebhookFullWidth {
			b.Openings = 0
		}
		return b
	}
	b.Failures++
	if !gone {
		b.GoneSince = 0
	} else if b.GoneSince == 0 {
		b.GoneSince = now
	}
	b.Width = max(1, b.Width/2)
	if b.OpenUntil != 0 && now >= b.OpenUntil || b.OpenUntil == 0 && b.Failures >= WebhookOpensAfter {
		b.Openings++
		b.OpenUntil = now.Add(openFor(b.Openings))
	}
	return b
}

// isGone says that the endpoint has answered nothing but 410 for so long that it is given up.
func (b WebhookBreaker) isGone(now Millis) bool {
	return b.GoneSince != 0 && now.Sub(b.GoneSince) >= WebhookGoneFor
}

// openFor is how long the breaker stays open the n-th time, from 1.
func openFor(n int) time.Duration {
	if n > 8 { // 2^8 times is beyond the longest
		return WebhookOpenAtMost
	}
	return min(WebhookOpenFor<<(n-1), WebhookOpenAtMost)
}
