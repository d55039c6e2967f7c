package main

import (
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
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

// The service has recovered at the first of ten successive usual probes, and never without them.
func TestRecoveryTime(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		slow []int // indexes of the slow probes of twenty, one a second
		want float64
	}{
		"at once":              {nil, 0.5},
		"after two":            {[]int{0, 1}, 2.5},
		"in the second half":   {[]int{9}, 10.5},
		"only nine in a row":   {[]int{9, 10}, math.Inf(1)},
		"slow to the very end": {[]int{5, 10, 15, 19}, math.Inf(1)},
	} {
		var probes []probe
		for i := range 20 {
			probes = append(probes, probe{due: time.Duration(i) * time.Second, took: time.Second / 2})
		}
		for _, i := range tt.slow {
			probes[i].took = failedProbe
		}
		if got := recoveryTime(probes, time.Second); got != tt.want {
			t.Errorf("%s: %g s, want %g s", name, got, tt.want)
		}
	}
	if got := recoveryTime(nil, time.Second); !math.IsInf(got, 1) {
		t.Errorf("without probes: %g s", got)
	}
}
