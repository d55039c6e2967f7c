package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// observer is an HTTP transport for partners that checks every answer. A service that cannot serve
// a request must answer 503 with Retry-After. Other answers of 5xx are breaches, and so are
// requests without an answer. An observer is safe for concurrent use.
type observer struct {
	next http.RoundTripper

	mu          sync.Mutex
	unavailable int                // answers of 503 with Retry-After
	broken      []string           // the first maxObservedBreaches breaches
	failing     bool               // between outage(true) and outage(false)
	intents     [2][]time.Duration // latencies of new payment intents; index 1: sent while failing
}

// outage records that a master of Redis dies (failing), or that work has continued on the promoted
// one.
func (o *observer) outage(failing bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failing = failing
}

// percentiles describes a number of latencies. They are nanoseconds in JSON.
type percentiles struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50"`
	P99   time.Duration `json:"p99"`
	Max   time.Duration `json:"max"`
}

// String implements fmt.Stringer.
func (l percentiles) String() string {
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	return fmt.Sprintf("p50 %s, p99 %s, max %s of %d", round(l.P50), round(l.P99), round(l.Max), l.Count)
}

// latencies returns the latencies of new payment intents by the time of their request: during an
// outage as the method outage records it, or outside of all (calm). A request that is running when
// a master dies is calm.
func (o *observer) latencies() (calm, outage percentiles) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := func(all []time.Duration) percentiles {
		if len(all) == 0 {
			return percentiles{}
		}
		slices.Sort(all)
		return percentiles{len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1]}
	}
	return of(o.intents[0]), of(o.intents[1])
}

// maxObservedBreaches is the maximum number of breaches that an observer keeps.
const maxObservedBreaches = 20

// RoundTrip implements http.RoundTripper. It checks the answer, and measures the latency if the
// request creates a payment intent.
func (o *observer) RoundTrip(req *http.Request) (*http.Response, error) {
	o.mu.Lock()
	failing := 0
	if o.failing {
		failing = 1
	}
	o.mu.Unlock()
	began := time.Now()
	resp, err := o.next.RoundTrip(req)
	took := time.Since(began)
	o.mu.Lock()
	defer o.mu.Unlock()
	if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/payment-intent") {
		o.intents[failing] = append(o.intents[failing], took)
	}
	switch {
	case err != nil && !isCancelled(req):
		o.breach("%s %s was not answered: %v", req.Method, req.URL.Path, err)
	case err != nil || resp.StatusCode < http.StatusInternalServerError:
	case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		o.unavailable++
	default:
		o.breach("%s %s was answered with %s, Retry-After %q",
			req.Method, req.URL.Path, resp.Status, resp.Header.Get("Retry-After"))
	}
	return resp, err
}

// isCancelled reports whether the caller has cancelled a request. A request that exceeds the
// Timeout of its http.Client is not cancelled: the context then has a deadline.
func isCancelled(req *http.Request) bool { return errors.Is(req.Context().Err(), context.Canceled) }

// breach records a breach. The caller holds mu.
func (o *observer) breach(format string, args ...any) {
	if len(o.broken) < maxObservedBreaches {
		o.broken = append(o.broken, fmt.Sprintf(format, args...))
	}
}

// seen returns the number of requests that were answered with 503 and Retry-After, and the
// breaches.
func (o *observer) seen() (unavailable int, broken []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unavailable, append([]string(nil), o.broken...)
}
