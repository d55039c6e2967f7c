package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// call is a POST of JSON that is ready.
type call struct {
	url, token, body string
}

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

// do makes a call, which is expected to make something.
func (c *caller) do(call *call) error {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	request.Header.SetMethod(http.MethodPost)
	request.SetRequestURI(call.url)
	if call.token != "" {
		request.Header.Set("Authorization", "Bearer "+call.token)
	}
	request.Header.SetContentType("application/json")
	request.SetBodyString(call.body)
	if err := c.http.Do(request, response); err != nil {
		return err
	}
	if status := response.StatusCode(); status != http.StatusCreated {
		return fmt.Errorf("POST %s: %d: %s", call.url, status, response.Body())
	}
	return nil
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
	var group sync.WaitGroup
	began, timer := time.Now(), time.NewTimer(0)
	defer timer.Stop()
	for n := range int(rate * within.Seconds()) {
		due := began.Add(time.Duration(float64(n) / rate * float64(time.Second)))
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-ctx.Done():
			group.Wait()
			return nil, ctx.Err()
		}
		group.Go(func() { l.add(due, c.do(call)) })
	}
	group.Wait()
	return l.sorted(), l.err
}
