package models

import "time"

// The breaker's parameters.
const (
	// WebhookFirstWidth is the maximum number of concurrent deliveries to an endpoint without
	// history.
	WebhookFirstWidth = 4
	// WebhookFullWidth is the maximum number of concurrent deliveries to a healthy endpoint, of all
	// workers together.
	WebhookFullWidth = 128
	// WebhookOpensAfter is the number of consecutive failures that opens the breaker.
	WebhookOpensAfter = 10
	// WebhookOpenFor is how long the breaker stays open the first time. Each further opening before
	// the breaker is back at full width doubles it, up to WebhookOpenAtMost.
	WebhookOpenFor    = 30 * time.Second
	WebhookOpenAtMost = 10 * time.Minute
	// WebhookGoneFor is how long an endpoint answers only 410 before it is disabled.
	WebhookGoneFor = 24 * time.Hour
)

// WebhookBreaker limits deliveries to a failing endpoint, and ramps up a recovering one. Width
// bounds concurrent deliveries: each success adds one, each failure halves it. WebhookOpensAfter
// consecutive failures open the breaker until OpenUntil. From then on it is half-open: one probe at
// a time is sent. Any success closes it with width two, even that of a delivery that began before
// it opened. Times are service time.
type WebhookBreaker struct {
	Failures  int    // consecutive
	OpenUntil Millis // 0: closed; in the past: half-open
	Openings  int    // since the breaker last reached full width
	Width     int    // concurrent deliveries, 1 to WebhookFullWidth
	GoneSince Millis // the first of consecutive 410 answers; 0: none
}

// newWebhookBreaker returns the breaker of an endpoint without history.
func newWebhookBreaker() WebhookBreaker { return WebhookBreaker{Width: WebhookFirstWidth} }

// healthyBreaker is the breaker that a success leaves unchanged.
var healthyBreaker = WebhookBreaker{Width: WebhookFullWidth}

// columns returns the breaker as the SQL function webhook_breaker does. Statements get
// healthyBreaker in this form, and compare endpoints with it.
func (b WebhookBreaker) columns() []int64 {
	return []int64{int64(b.Failures), int64(b.OpenUntil), int64(b.Openings), int64(b.Width), int64(b.GoneSince)}
}

// capacity returns how many more deliveries may begin while inFlight are in progress.
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

// after returns the breaker as an attempt leaves it. gone says that the answer was 410.
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

// isGone reports whether the endpoint has answered only 410 for WebhookGoneFor.
func (b WebhookBreaker) isGone(now Millis) bool {
	return b.GoneSince != 0 && now.Sub(b.GoneSince) >= WebhookGoneFor
}

// openFor returns how long the breaker stays open the n-th time, from 1.
func openFor(n int) time.Duration {
	if n > 8 { // 2^8 times exceeds the maximum
		return WebhookOpenAtMost
	}
	return min(WebhookOpenFor<<(n-1), WebhookOpenAtMost)
}
