package main

import (
	"fmt"
	"net/http"
	"sync"
)

// observer is an HTTP transport of partners that checks every answer: a service that cannot serve
// must answer 503 with Retry-After. It is safe for concurrent use.
type observer struct {
	next http.RoundTripper

	mu          sync.Mutex
	unavailable int      // answers of 503 with Retry-After
	broken      []string // the first maxObservedBreaches other answers of 5xx, and requests without an answer
}

const maxObservedBreaches = 20

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
		o.breach("%s %s was answered with %s, Retry-After %q",
			req.Method, req.URL.Path, resp.Status, resp.Header.Get("Retry-After"))
	}
	return resp, err
}

// breach records a breach.
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
