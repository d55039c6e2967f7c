package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"partnerbilling/models"
)

// maxRetryAfter is the longest that a receiver may ask us to wait.
const maxRetryAfter = time.Hour

// Schedule says when a failed notification is sent again.
type Schedule struct {
	// Delays are the waits after the first, second, … failure; there are as many retries. Default DefaultDelays.
	Delays []time.Duration
	// Jitter spreads each wait by up to this part of it, both ways: 0.2 is ±20 %. What failed together then does not come
	// back together.
	Jitter float64
}

// DefaultSchedule is what partners are promised.
func DefaultSchedule() Schedule {
	return Schedule{
		Delays: []time.Duration{10 * time.Second, 2 * time.Minute, 20 * time.Minute, 3 * time.Hour, 24 * time.Hour},
		Jitter: 0.2,
	}
}

// Verdict is what an attempt means for its event. failures counts the failures of this round before it; random is in [0, 1).
// The wait is that of the schedule, or longer if the receiver asks for more, up to an hour. A receiver that answers 410
// gets no more, and neither does one that is asked only once.
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

// retryAfter reads a Retry-After header (RFC 9110: seconds, or a date); -1 if it says nothing that can be understood. A time
// that has passed is 0.
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
