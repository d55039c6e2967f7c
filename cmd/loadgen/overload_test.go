package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Latencies of refused probes do not count, and a refused probe is never usual.
func TestOverloadProbes(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	o := &overload{intents: []*call{{url: server.URL}}}
	latencies, probes := newDistribution("probes"), []probe(nil)
	if err := o.probe(t.Context(), latencies, &probes); err != nil {
		t.Fatal(err)
	}
	if p99 := latencies.p99.median(); p99 != 0 || len(probes) == 0 {
		t.Errorf("the p99 of %d refused probes is %g ms", len(probes), p99)
	}
	for _, p := range probes {
		if p.took != failedProbe {
			t.Fatalf("a refused probe took %s", p.took)
		}
	}
}
