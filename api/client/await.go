package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// maxHoldTime is the maximum time for which a GET asks the service to hold its answer. It is
	// shorter than common time-outs of proxies.
	maxHoldTime = 20 * time.Second
	// minPollDelay is the minimum time between two GETs if the service does not hold its answers.
	minPollDelay = time.Second
)

// await repeats a GET, whose answers the service holds, until done reports the end. It returns the
// last answer, also with an error. Answers come early if a proxy drops the Prefer header or the
// service holds too many requests: await then waits as Retry-After asks.
func await[T any](ctx context.Context, c *Client, path string, done func(*T) bool) (last T, err error) {
	hold, header := c.holdTime(), http.Header{}
	prefer(header, hold)
	for {
		began := time.Now()
		var next T // a value of its own: decoding keeps what an answer omits
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

// prefer asks the service to hold its answer for at most hold, unless hold is 0.
func prefer(header http.Header, hold time.Duration) {
	if hold > 0 {
		header.Set("Prefer", fmt.Sprintf("wait=%d", int(hold.Seconds())))
	}
}

// pause waits before the next poll: as long as an answer's Retry-After asks, and a second at least.
func pause(ctx context.Context, answer response) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("client: await: %w", ctx.Err())
	case <-time.After(max(minPollDelay, min(headerRetryAfter(answer.header), maxHoldTime))):
		return nil
	}
}

// holdTime returns the whole seconds for which a GET asks the service to hold its answer: at most
// half of the time-out of the HTTP client. 0 means that it does not ask.
func (c *Client) holdTime() time.Duration {
	hold := maxHoldTime
	if timeout := c.cfg.HTTP.Timeout; timeout > 0 {
		hold = min(hold, timeout/2)
	}
	return hold.Truncate(time.Second)
}
