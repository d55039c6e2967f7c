package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
)

// A run whose calls the service refuses misses a target. Calls of other clients do not count.
func TestReportRefusedCalls(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		calls, refused int
		want           string // a pattern of the report
	}{
		{"no call", 0, 0, `runs\s*$`},
		{"no refused call", 10, 0, `refused, of all calls +0 +at most 0.001 +met`},
		{"as many as the target", 1000, 1, `refused, of all calls +0.001 +at most 0.001 +met`},
		{"more than the target", 1000, 2, `refused, of all calls +0.002 +at most 0.001 +MISSED`},
		{"most", 10, 9, `refused, of all calls +0.9 +at most 0.001 +MISSED`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			left := tt.refused
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				status := http.StatusCreated
				if left > 0 {
					left--
					status = http.StatusServiceUnavailable
				}
				w.WriteHeader(status)
			}))
			t.Cleanup(server.Close)
			var out bytes.Buffer
			b := &bench{out: &out, calls: &callCounts{}}
			measured := b.measuringClient(1)
			for range tt.calls {
				if err := measured.do(&call{url: server.URL}); err != nil && !errors.Is(err, errRefused) {
					t.Fatal(err)
				}
			}
			if err := newLoadClient(1).do(&call{url: server.URL}); err != nil {
				t.Fatal(err)
			}
			if err := b.report(nil, nil); err != nil {
				t.Fatal(err)
			}
			if !regexp.MustCompile(tt.want).MatchString(out.String()) {
				t.Errorf("printed %q, want %s", out.String(), tt.want)
			}
		})
	}
}
