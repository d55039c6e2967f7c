package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"partnerbilling/models"
)

// maxRetryAfter is the maximum wait that a receiver may ask for with Retry-After.
const maxRetryAfter = time.Hour

// Schedule is the backoff between the attempts to deliver a webhook event.
type Schedule struct {
	// Delays holds the waits after the first, second, … failure. Its length is the number of
	// retries.
	Delays []time.Duration
	// Jitter is the maximum random deviation, as a fraction of each wait: 0.2 is ±20 %. It spreads
	// the retries of attempts that failed together.
	Jitter float64
}

// DefaultSchedule returns the schedule that the contract with partners promises.
func DefaultSchedule() Schedule {
	return Schedule{
		Delays: []time.Duration{10 * time.Second, 2 * time.Minute, 20 * time.Minute, 3 * time.Hour, 24 * time.Hour},
		Jitter: 0.2,
	}
}

// Verdict returns the consequence of an attempt for its event. failures counts the earlier failed
// attempts since the event was created or last redelivered. random, in [0, 1), chooses the jitter.
//
// The event of a failed attempt is retried after the schedule's delay, or later if the receiver
// asks for it with Retry-After, up to an hour. The event fails instead on status 410, after the
// last delay and, if once is set, on any failure.
func (s Schedule) Verdict(r *Result, failures int, once bool, random float64) models.WebhookVerdict {
	switch {
	case r.Success():
		return models.WebhookVerdict{Status: models.WebhookDelivered}
	case r.Gone(), once, failures >= len(s.Delays):
		return models.WebhookVerdict{Status: models.WebhookFailed, Gone: r.Gone()}
	}
	wait := time.Duration(float64(s.Delays[failures]) * (1 - s.Jitter + 2*s.Jitter*random)).Round(time.Millisecond)
	return models.WebhookVerdict{Status: models.WebhookPending, Retry: max(wait, min(r.RetryAfter, maxRetryAfter))}
}

// retryAfter returns the wait of a Retry-After header (RFC 9110: seconds, or a date), at most
// maxRetryAfter. It returns 0 for a date in the past, and -1 for an empty or invalid header.
func retryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if header == "" {
		return -1
	}
	if strings.Trim(header, "0123456789") == "" {
		n, err := strconv.ParseInt(header, 10, 64)
		if err != nil || n > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return -1
	}
	return min(max(0, at.Sub(now)), maxRetryAfter)
}
