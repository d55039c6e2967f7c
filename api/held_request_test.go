package api_test

import (
	"context"
	"net/http"
	"testing"

	"partnerbilling/api/apitest"
	"partnerbilling/api/ratelimit"
	"partnerbilling/models"
)

// arrivals is a limiter that allows every request and signals its arrival.
type arrivals struct{ next chan struct{} }

func newArrivals() *arrivals { return &arrivals{make(chan struct{}, 1)} }

func (a *arrivals) Take(context.Context, models.ClientID, ratelimit.Class) ratelimit.Decision {
	select {
	case a.next <- struct{}{}:
	default: // an earlier arrival is still unread
	}
	return ratelimit.Decision{Allowed: true}
}

// hold starts a GET that the server holds, and returns once it has arrived or failed. The channel
// delivers the answer; it is closed without one on failure.
func (a *arrivals) hold(t testing.TB, client *apitest.Client, path string) <-chan *apitest.Answer {
	t.Helper()
	select {
	case <-a.next: // the arrival of an earlier request
	default:
	}
	answers, ended := make(chan *apitest.Answer, 1), make(chan struct{})
	go func() {
		defer close(answers)
		defer close(ended)
		answer, err := client.Try(context.Background(), http.MethodGet, path, nil)
		if err != nil {
			t.Errorf("the held request: %v", err)
			return
		}
		answers <- answer
	}()
	select {
	case <-a.next:
	case <-ended:
	}
	return answers
}
