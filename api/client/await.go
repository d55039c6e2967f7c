package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// maxHoldTime is the maximum time for which the GETs of await and WatchBatch ask the service to
	// hold its answers. It is shorter than common time-outs of proxies.
	maxHoldTime = 20 * time.Second
	// minPollDelay is the minimum time between two GETs if the service does not hold its answers.
	minPollDelay = time.Second
)

// await repeats a GET until done accepts the answer, and returns the last answer, also with an
// error. It asks the service to hold each answer for holdTime. An answer comes early if a proxy
// drops the Prefer header, or if the service holds too many requests. await then pauses before the
// next GET.
func await[T any](ctx context.Context, c *Client, path string, done func(*T) bool) (last T, err error) {
	hold, header := c.holdTime(), http.Header{}
	prefer(header, hold)
	for {
		began := time.Now()
		var next T // a new value each time: decoding keeps the fields that an answer omits
		answer, err := c.do(ctx, request{method: http.MethodGet, path: path, header: header, repeatable: true}, &next)
		if err != nil {
			return last, err
		}
		if last = next; done(&last) {
			return last, nil
		}
		if hold > 0 && time.Since(began) >= hold/2 {
			continue
		}
		if err := pause(ctx, answer); err != nil {
			return last, err
		}
	}
}

// prefer sets the header Prefer, which asks the service to hold its answer for at most hold. It
// sets nothing if hold is 0.
func prefer(header http.Header, hold time.Duration) {
	if hold > 0 {
		header.Set("Prefer", fmt.Sprintf("wait=%d", int(hold.Seconds())))
	}
}

// pause waits before the next GET for as long as an answer's Retry-After asks, but at least
// minPollDelay and at most maxHoldTime.
func pause(ctx context.Context, answer response) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("client: await: %w", ctx.Err())
	case <-time.After(max(minPollDelay, min(headerRetryAfter(answer.header), maxHoldTime))):
		return nil
	}
}

// holdTime returns the time for which a GET asks the service to hold its answer, in whole seconds.
// It is at most half of the HTTP client's time-out. 0 means that the GET does not ask.
func (c *Client) holdTime() time.Duration {
	hold := maxHoldTime
	if timeout := c.cfg.HTTP.Timeout; timeout > 0 {
		hold = min(hold, timeout/2)
	}
	return hold.Truncate(time.Second)
}
