package models

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestWebhookBreaker(t *testing.T) {
	t.Parallel()
	const now = Millis(1_000_000_000)
	full := WebhookBreaker{Width: WebhookFullWidth}
	open := WebhookBreaker{Failures: 12, OpenUntil: now.Add(time.Second), Openings: 2, Width: 1}
	due := WebhookBreaker{Failures: 12, OpenUntil: now, Openings: 2, Width: 1}
	for name, c := range map[string]struct{ got, want WebhookBreaker }{
		"a success at full width": {full.after(true, false, now), full},
		"a success widens":        {newWebhookBreaker().after(true, false, now), WebhookBreaker{Width: 5}},
		"the last step forgets":   {WebhookBreaker{Width: WebhookFullWidth - 1, Openings: 3}.after(true, false, now), full},
		"a failure halves":        {full.after(false, false, now), WebhookBreaker{Failures: 1, Width: WebhookFullWidth / 2}},
		"never to nothing": {WebhookBreaker{Width: 1}.after(false, false, now),
			WebhookBreaker{Failures: 1, Width: 1}},
		"the last failure opens": {WebhookBreaker{Failures: 9, Width: 1}.after(false, false, now),
			WebhookBreaker{Failures: 10, OpenUntil: now.Add(30 * time.Second), Openings: 1, Width: 1}},
		"one that was under way": {open.after(false, false, now),
			WebhookBreaker{Failures: 13, OpenUntil: open.OpenUntil, Openings: 2, Width: 1}},
		"a failed probe opens longer": {due.after(false, false, now),
			WebhookBreaker{Failures: 13, OpenUntil: now.Add(2 * time.Minute), Openings: 3, Width: 1}},
		"a probe succeeds": {due.after(true, false, now), WebhookBreaker{Openings: 2, Width: 2}},
		"the first 410": {full.after(false, true, now),
			WebhookBreaker{Failures: 1, Width: WebhookFullWidth / 2, GoneSince: now}},
		"another 410": {WebhookBreaker{Failures: 1, Width: 16, GoneSince: 5}.after(false, true, now),
			WebhookBreaker{Failures: 2, Width: 8, GoneSince: 5}},
		"another failure is not a 410": {WebhookBreaker{Failures: 1, Width: 16, GoneSince: 5}.after(false, false, now),
			WebhookBreaker{Failures: 2, Width: 8}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
		}
	}
	for n, want := range map[int]time.Duration{1: 30 * time.Second, 2: time.Minute, 5: 8 * time.Minute,
		6: 10 * time.Minute, 60: 10 * time.Minute} {
		if got := openFor(n); got != want {
			t.Errorf("opening %d lasts %s, want %s", n, got, want)
		}
	}
}

// After any attempts, the width stays in range, an open breaker admits at most one probe, and
// consecutive successes restore full width.
func TestWebhookBreakerProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b, now := newWebhookBreaker(), Millis(1_000_000_000)
		for range rapid.IntRange(0, 60).Draw(t, "attempts") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 100_000).Draw(t, "ms")) * time.Millisecond)
			inFlight := rapid.IntRange(0, 40).Draw(t, "under way")
			capacity := b.capacity(inFlight, now)
			switch {
			case b.Width < 1 || b.Width > WebhookFullWidth || b.Failures < 0:
				t.Fatalf("%+v", b)
			case b.OpenUntil == 0 && (capacity < 0 || capacity+inFlight > max(b.Width, inFlight)):
				t.Fatalf("%+v has capacity for %d beside %d", b, capacity, inFlight)
			case b.OpenUntil != 0 && (capacity > 1 || capacity == 1 && (inFlight > 0 || now < b.OpenUntil)):
				t.Fatalf("open %+v has capacity for %d beside %d at %d", b, capacity, inFlight, now)
			}
			b = b.after(rapid.Bool().Draw(t, "success"), rapid.Bool().Draw(t, "gone"), now)
		}
		for range WebhookFullWidth {
			b = b.after(true, false, now)
		}
		if b != healthyBreaker {
			t.Fatalf("after many successes: %+v", b)
		}
	})
}
