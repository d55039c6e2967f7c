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
	"time"

	"github.com/valyala/fasthttp"
)

// call is a request that is ready, and how it is answered if all is well.
type call struct {
	url           string
	authorization string // the header; "" for none
	body          string // of a POST; "" makes it a GET
	contentType   string // default JSON
	key           string // Idempotency-Key; "" for none
	want          int    // status; default 201
}

// bearer is the Authorization header of a token.
func bearer(token string) string { return "Bearer " + token }

// caller makes calls over connections that it keeps, as cheaply as can be: what it costs is taken from what is measured.
type caller struct{ http *fasthttp.Client }

// openConns is how many calls of an open loop may be under way at once.
const openConns = 4096

func newCaller(conns int) *caller {
	return &caller{&fasthttp.Client{
		MaxConnsPerHost: conns, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		RetryIfErr: func(*fasthttp.Request, int, error) (bool, bool) { return false, false },
	}}
}

// dialAhead opens connections before they are needed, as clients have them that have been there for a while. Those that are
// never used are closed by the server, which must have taken them all once it has answered on a later one.
func (c *caller) dialAhead(ctx context.Context, address string, conns int) error {
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

// do makes a call, and fails unless it is answered as it should be.
func (c *caller) do(call *call) error {
	return c.send(call, func(status int, body []byte) error {
		if want := cmp.Or(call.want, http.StatusCreated); status != want {
			return fmt.Errorf("%s: %d: %s", call.url, status, body)
		}
		return nil
	})
}

// send makes a call, and passes on what it is answered with; the body is the caller's until read returns.
func (c *caller) send(call *call, read func(status int, body []byte) error) error {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	request.SetRequestURI(call.url)
	request.Header.Set("Svc-Api-Version", "urn:svc:api:billing:version:v1")
	if call.authorization != "" {
		request.Header.Set("Authorization", call.authorization)
	}
	if call.key != "" {
		request.Header.Set("Idempotency-Key", call.key)
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

// laps collects how long calls took, and the first that failed.
type laps struct {
	mu    sync.Mutex
	spans []time.Duration
	err   error
}

func (l *laps) add(due time.Time, err error) {
	took := time.Since(due)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.spans = append(l.spans, took)
	} else if l.err == nil {
		l.err = err
	}
}

func (l *laps) sorted() []time.Duration {
	slices.Sort(l.spans)
	return l.spans
}

// closedLoop lets workers make one call after another until the time is over. It returns how long each took, sorted, and
// how long all of it.
func (c *caller) closedLoop(ctx context.Context, workers int, within time.Duration, call *call) ([]time.Duration, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var l laps
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
	return l.sorted(), took, l.err
}

// openLoop makes calls at a rate, whether or not earlier ones were answered, and returns how long each took from when it was
// due, sorted.
func (c *caller) openLoop(ctx context.Context, rate float64, within time.Duration, call *call) ([]time.Duration, error) {
	var l laps
	err := pace(ctx, rate, within, func(_ int, due time.Time) { l.add(due, c.do(call)) })
	return l.sorted(), errors.Join(err, l.err)
}

// pace has things done at a rate, each as soon as it is due, whether or not those before have ended, and waits for all.
func pace(ctx context.Context, rate float64, within time.Duration, do func(n int, due time.Time)) error {
	var group sync.WaitGroup
	defer group.Wait()
	began, timer := time.Now(), time.NewTimer(0)
	defer timer.Stop()
	for n := range int(rate * within.Seconds()) {
		due := began.Add(time.Duration(float64(n) / rate * float64(time.Second)))
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		group.Go(func() { do(n, due) })
	}
	return nil
}
