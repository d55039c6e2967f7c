package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"partnerbilling/api/client"
)

// call is a prepared request with its expected status.
type call struct {
	url           string
	authorization string // the header; "" for none
	body          string // of a POST; "" makes it a GET
	contentType   string // default JSON
	key           string // Idempotency-Key; "" for none
	prefer        string // Prefer; "" for none
	want          int    // status; default 201
}

// bearer returns the Authorization header of a token.
func bearer(token string) string { return "Bearer " + token }

// loadClient makes calls over kept connections with little CPU time, since it shares the CPUs with
// the measured service.
type loadClient struct {
	http   *fasthttp.Client
	counts *callCounts // nil if the calls are not measured
}

// callCounts counts measured calls. It is safe for concurrent use.
type callCounts struct {
	sent    atomic.Int64
	refused atomic.Int64 // answered with 503
}

// maxRefused is the target for the ratio of refused calls: a run with more measures the limits of
// the machine.
const maxRefused = 0.001

// ratio returns the ratio of refused calls. It reports false if no call was measured.
func (c *callCounts) ratio() (ratio, bool) {
	sent := float64(c.sent.Load())
	return ratio{Name: "refused, of all calls", Value: float64(c.refused.Load()) / sent, Target: -maxRefused}, sent > 0
}

// errRefused is the error of a call that the service refused with 503, as it does under overload.
var errRefused = errors.New("refused with 503")

// openConns is the maximum number of concurrent calls in an open loop.
const openConns = 4096

func newLoadClient(conns int) *loadClient {
	return &loadClient{http: &fasthttp.Client{
		MaxConnsPerHost: conns, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		RetryIfErr: func(*fasthttp.Request, int, error) (bool, bool) { return false, false },
	}}
}

// measuringClient returns a client whose calls and refused calls are part of the scenario's
// results: a machine that is too slow for the load makes the service refuse some.
func (b *bench) measuringClient(conns int) *loadClient {
	c := newLoadClient(conns)
	c.counts = b.calls
	return c
}

// dialAhead opens connections before they are needed, as clients that have run for a while do. The
// server has accepted all of them once it answers on a later one. The server closes those that are
// never used.
func (c *loadClient) dialAhead(ctx context.Context, address string, conns int) error {
	ready := make(chan net.Conn, conns)
	for range conns {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		ready <- conn
	}
	c.http.Dial = func(address string) (net.Conn, error) {
		select {
		case conn := <-ready:
			return conn, nil
		default:
			return fasthttp.Dial(address)
		}
	}
	return nil
}

// check returns an error unless the status is the expected one: errRefused for 503.
func (c *call) check(status int, body []byte) error {
	switch status {
	case cmp.Or(c.want, http.StatusCreated):
		return nil
	case http.StatusServiceUnavailable:
		return fmt.Errorf("%s: %w", c.url, errRefused)
	}
	return fmt.Errorf("%s: %d: %s", c.url, status, body)
}

// do makes a call. It returns an error unless the answer has the expected status.
func (c *loadClient) do(call *call) error {
	err := c.send(call, call.check)
	if c.counts != nil {
		c.counts.sent.Add(1)
		if errors.Is(err, errRefused) {
			c.counts.refused.Add(1)
		}
	}
	return err
}

// send makes a call and passes the answer to read. The body is valid until read returns.
func (c *loadClient) send(call *call, read func(status int, body []byte) error) error {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	request.SetRequestURI(call.url)
	request.Header.Set("Svc-Api-Version", client.Version)
	if call.authorization != "" {
		request.Header.Set("Authorization", call.authorization)
	}
	if call.key != "" {
		request.Header.Set("Idempotency-Key", call.key)
	}
	if call.prefer != "" {
		request.Header.Set("Prefer", call.prefer)
	}
	if call.body != "" {
		request.Header.SetMethod(http.MethodPost)
		request.Header.SetContentType(cmp.Or(call.contentType, "application/json"))
		request.SetBodyString(call.body)
	}
	if err := c.http.Do(request, response); err != nil {
		return err
	}
	return read(response.StatusCode(), response.Body())
}

// retryRefused calls do once a second until the service no longer refuses the call.
func retryRefused(ctx context.Context, do func() error) error {
	return await(ctx, time.Second, func() (bool, error) {
		err := do()
		if errors.Is(err, errRefused) {
			return false, nil
		}
		return true, err
	})
}

// timings collects the latencies of successful calls, and errors. Its method add is safe for
// concurrent use; the others must follow the last add.
type timings struct {
	mu        sync.Mutex
	latencies []time.Duration
	err       error // the first one
	refused   error // the first refused call
}

func (l *timings) add(due time.Time, err error) {
	took := time.Since(due)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.latencies = append(l.latencies, took)
	case errors.Is(err, errRefused):
		l.refused = cmp.Or(l.refused, err)
	default:
		l.err = cmp.Or(l.err, err)
	}
}

// failure returns the first error. A refused call counts as an error only if no call succeeded.
func (l *timings) failure() error {
	if len(l.latencies) == 0 {
		return cmp.Or(l.err, l.refused)
	}
	return l.err
}

func (l *timings) sorted() []time.Duration {
	slices.Sort(l.latencies)
	return l.latencies
}

// closedLoop has each worker make one call after another for the duration. It returns the sorted
// latencies and the total time.
func (c *loadClient) closedLoop(
	ctx context.Context, workers int, duration time.Duration, call *call,
) ([]time.Duration, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	var l timings
	var group sync.WaitGroup
	began := time.Now()
	for range workers {
		group.Go(func() {
			for ctx.Err() == nil {
				due := time.Now()
				l.add(due, c.do(call))
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	return l.sorted(), took, l.failure()
}

// openLoop makes calls at a rate, whether or not earlier calls were answered. It returns the sorted
// latencies, from the time when each call was due.
func (c *loadClient) openLoop(
	ctx context.Context, rate float64, duration time.Duration, call *call,
) ([]time.Duration, error) {
	var l timings
	err := pace(ctx, rate, callsIn(duration, rate), func(_ context.Context, _ int, due time.Time) error {
		l.add(due, c.do(call))
		return nil
	})
	return l.sorted(), errors.Join(err, l.failure())
}
