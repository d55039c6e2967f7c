package main

import (
	"fmt"
	"net/http"
	"sync"
)

// observer is a partner's HTTP transport that holds every answer against the contract: while the service cannot
// serve, it says 503 with Retry-After, and nothing else.
type observer struct {
	next http.RoundTripper

	mu          sync.Mutex
	unavailable int      // answers 503 with Retry-After
	broken      []string // other answers from 500, and calls without an answer; the first few
}

const observedBreaches = 20

// RoundTrip implements http.RoundTripper.
func (o *observer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(req)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err != nil && req.Context().Err() == nil:
		o.breach("%s %s was not answered: %v", req.Method, req.URL.Path, err)
	case err != nil || resp.StatusCode < http.StatusInternalServerError:
	case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		o.unavailable++
	default:
		o.breach("%s %s was answered with %s, Retry-After %q", req.Method, req.URL.Path, resp.Status, resp.Header.Get("Retry-After"))
	}
	return resp, err
}

func (o *observer) breach(format string, args ...any) {
	if len(o.broken) < observedBreaches {
		o.broken = append(o.broken, fmt.Sprintf(format, args...))
	}
}

// seen returns how many requests were refused as they should be, and the answers that should not be.
func (o *observer) seen() (unavailable int, broken []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unavailable, append([]string(nil), o.broken...)
}
