package webhook

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"partnerbilling/models"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"": -1, "0": 0, " 7 ": 7 * time.Second, "3600": time.Hour, "3601": time.Hour, "99999999999999999999": time.Hour,
		"-1": -1, "1.5": -1, "soon": -1, "+5": -1,
		"Fri, 27 Nov 2026 12:00:30 GMT":  30 * time.Second,
		"Fri, 27 Nov 2026 11:00:00 GMT":  0,
		"Sat, 28 Nov 2026 12:00:00 GMT":  time.Hour,
		"Friday, 27-Nov-26 12:01:00 GMT": time.Minute,
		"Fri Nov 27 12:00:05 2026":       5 * time.Second,
	} {
		if got := retryAfter(header, noon); got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("7")
	f.Add("Fri, 27 Nov 2026 12:00:30 GMT")
	f.Fuzz(func(t *testing.T, header string) {
		if d := retryAfter(header, noon); d < -1 || d > time.Hour {
			t.Errorf("%q: %s", header, d)
		}
	})
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	s := DefaultSchedule()
	retry := func(d time.Duration) models.WebhookVerdict {
		return models.WebhookVerdict{Status: models.WebhookPending, Retry: d}
	}
	for name, c := range map[string]struct {
		result   Result
		failures int
		test     bool
		random   float64
		want     models.WebhookVerdict
	}{
		"delivered": {Result{StatusCode: 299}, 5, false, 0.5,
			models.WebhookVerdict{Status: models.WebhookDelivered}},
		"first":  {Result{StatusCode: 500, RetryAfter: -1}, 0, false, 0.5, retry(10 * time.Second)},
		"second": {Result{RetryAfter: -1}, 1, false, 0.5, retry(2 * time.Minute)},
		"third":  {Result{RetryAfter: -1}, 2, false, 0.5, retry(20 * time.Minute)},
		"fourth": {Result{RetryAfter: -1}, 3, false, 0.5, retry(3 * time.Hour)},
		"fifth":  {Result{RetryAfter: -1}, 4, false, 0.5, retry(24 * time.Hour)},
		"sixth": {Result{RetryAfter: -1}, 5, false, 0.5,
			models.WebhookVerdict{Status: models.WebhookFailed}},
		"earliest": {Result{RetryAfter: -1}, 0, false, 0, retry(8 * time.Second)},
		"asked to wait": {Result{StatusCode: 429, RetryAfter: 30 * time.Second}, 0, false, 0.9,
			retry(30 * time.Second)},
		"asked to wait less": {Result{StatusCode: 503, RetryAfter: 5 * time.Second}, 3, false, 0.5,
			retry(3 * time.Hour)},
		"less than its jitter": {Result{StatusCode: 503, RetryAfter: 11 * time.Second}, 0, false, 0.75,
			retry(11 * time.Second)},
		"asked not to wait":  {Result{StatusCode: 503, RetryAfter: 0}, 0, false, 0.5, retry(10 * time.Second)},
		"asked for too much": {Result{StatusCode: 503, RetryAfter: 25 * time.Hour}, 1, false, 0.5, retry(time.Hour)},
		"a longer schedule": {Result{StatusCode: 503, RetryAfter: 25 * time.Hour}, 4, false, 0.5,
			retry(24 * time.Hour)},
		"asked after the last": {Result{StatusCode: 503, RetryAfter: 0}, 5, false, 0.9,
			models.WebhookVerdict{Status: models.WebhookFailed}},
		"gone": {Result{StatusCode: 410, RetryAfter: 5}, 0, false, 0,
			models.WebhookVerdict{Status: models.WebhookFailed, Gone: true}},
		"a test": {Result{StatusCode: 500, RetryAfter: -1}, 0, true, 0,
			models.WebhookVerdict{Status: models.WebhookFailed}},
	} {
		if diff := cmp.Diff(c.want, s.Verdict(&c.result, c.failures, c.test, c.random)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Both forms of Retry-After may lengthen the wait, and never shorten it.
func TestVerdictByHeader(t *testing.T) {
	t.Parallel()
	s := DefaultSchedule()
	for header, want := range map[string]time.Duration{
		"": 10 * time.Second, "soon": 10 * time.Second,
		"3": 10 * time.Second, "30": 30 * time.Second, "86400": time.Hour,
		"Fri, 27 Nov 2026 11:00:00 GMT": 10 * time.Second,
		"Fri, 27 Nov 2026 12:00:03 GMT": 10 * time.Second,
		"Fri, 27 Nov 2026 12:00:30 GMT": 30 * time.Second,
		"Sat, 28 Nov 2026 12:00:00 GMT": time.Hour,
	} {
		r := Result{StatusCode: http.StatusServiceUnavailable, RetryAfter: retryAfter(header, noon)}
		if got := s.Verdict(&r, 0, false, 0.5).Retry; got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
}

func TestJitterStaysWithinAFifth(t *testing.T) {
	t.Parallel()
	s := DefaultSchedule()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, len(s.Delays)-1).Draw(t, "failures")
		random := rapid.Float64Range(0, 0.999999).Draw(t, "random")
		d, got := s.Delays[n], s.Verdict(&Result{RetryAfter: -1}, n, false, random).Retry
		if got < d*8/10 || got > d*12/10 {
			t.Fatalf("%s after failure %d", got, n+1)
		}
	})
}
