package main

import (
	"net/http"
	"sync/atomic"
	"testing"
)

// A command whose repetition has a further effect is not repeated when its answer is lost.
func TestActsAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"endpoints", "delete", "default"}, {"endpoints", "test"}, {"events", "redeliver", "evt_1"},
		{"events", "redeliver-all", "--status", "failed"}, {"secret", "rotate"}, {"api", "POST", "/x"},
		{"api", "POST", "/webhooks/secret/rotation", "-H", "Idempotency-Key: k"},
	} {
		var calls atomic.Int32
		server := newAPI(t, map[string]http.HandlerFunc{"/": func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"data":`))
		}})
		if r := svcctl(t.Context(), server.URL, args...); r.code != exitNetwork || calls.Load() != 1 {
			t.Errorf("%q: %d calls, %+v", args, calls.Load(), r)
		}
	}
}

// A call with an Idempotency-Key is repeated when its answer is lost.
func TestKeyedCallsAreRepeated(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	create := func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"data":`))
			return
		}
		answer(`{}`)(w, r)
	}
	server := newAPI(t, map[string]http.HandlerFunc{"POST /checkout/{site}/payment-intent": create})
	r := svcctl(t.Context(), server.URL, "api", "post", "/checkout/s/payment-intent", "-H", "idempotency-key: k")
	if r.code != 0 || calls.Load() != 2 {
		t.Errorf("%d calls, %+v", calls.Load(), r)
	}
}
