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

// call is a prepared request with its expected status. It can be made many times.
type call struct {
	url           string
	authorization string // header Authorization; "" for none
	body          string // of a POST; "" makes the call a GET
	contentType   string // of the body; "" for application/json
	key           string // header Idempotency-Key; "" for none
	prefer        string // header Prefer; "" for none
	want          int    // expected status; 0 for 201
}

// bearer returns the Authorization header of a token.
func bearer(token string) string { return "Bearer " + token }

// loadClient makes calls over kept-alive connections. It uses little CPU time, since it shares the
// CPUs with the measured service.
type loadClient struct {
	http   *fasthttp.Client
	counts *callCounts // nil if the calls are not measured
}

// callCounts counts measured calls. It is safe for concurrent use.
type callCounts struct {
	sent    atomic.Int64
	refused atomic.Int64 // answered with 503
}

// maxRefused is the maximum ratio of refused calls. If more are refused, the run measures the
// limits of the machine instead of the service.
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

// newLoadClient returns a client with up to conns connections to each host. It never repeats a
// request, and times out after a minute.
func newLoadClient(conns int) *loadClient {
	return &loadClient{http: &fasthttp.Client{
		MaxConnsPerHost: conns, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		RetryIfErr: func(*fasthttp.Request, int, error) (bool, bool) { return false, false },
	}}
}

// measuringClient returns a client whose calls count for the scenario's ratio of refused calls.
// That ratio shows whether the machine was too slow for the load.
func (b *bench) measuringClient(conns int) *loadClient {
	c := newLoadClient(conns)
	c.counts = b.calls
	return c
}

// dialAhead opens connections before they are needed, as if the client had run for a while. The
// server accepts connections in the order of dialling: once it answers on a later one, it has
// accepted all of these. The client leaves unused connections open until the server closes them.
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

// check returns an error unless the status is the expected one. For an unexpected 503, the error is
// errRefused.
func (c *call) check(status int, body []byte) error {
	switch status {
	case cmp.Or(c.want, http.StatusCreated):
		return nil
	case http.StatusServiceUnavailable:
		return fmt.Errorf("%s: %w", c.url, errRefused)
	}
	return fmt.Errorf("%s: %d: %s", c.url, status, body)
}

// do makes a call and counts it if the calls are measured. It returns an error unless the answer
// has the expected status.
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

// send makes a call, and passes the status and body of the answer to read. The body is valid until
// read returns.
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

// retryRefused calls do once a second until its error is not errRefused, and returns that error.
func retryRefused(ctx context.Context, do func() error) error {
	return await(ctx, time.Second, func() (bool, error) {
		err := do()
		if errors.Is(err, errRefused) {
			return false, nil
		}
		return true, err
	})
}

// timings collects the latencies of successful calls, and the first errors of failed ones. Its
// method add is safe for concurrent use. The other methods must not be called before the last add.
type timings struct {
	mu        sync.Mutex
	latencies []time.Duration
	err       error // the first one
	refused   error // the first refused call
}

// add records a call that has just ended with err. Its latency is the time since due, when the call
// should have begun.
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

// failure returns the first error. A refused call counts as an error only if no call succeeded at
// all.
func (l *timings) failure() error {
	if len(l.latencies) == 0 {
		return cmp.Or(l.err, l.refused)
	}
	return l.err
}

// sorted returns the latencies in ascending order.
func (l *timings) sorted() []time.Duration {
	slices.Sort(l.latencies)
	return l.latencies
}

// closedLoop makes calls for the duration, in a number of workers. Each worker makes its next call
// when the last one is answered. closedLoop returns the sorted latencies and the total time.
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

// openLoop makes calls at a rate per second, whether or not earlier calls are answered. It returns
// the sorted latencies, each from the time when the call was due.
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
