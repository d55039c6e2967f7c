package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"partnerbilling/cmd/cmdtest"
)

// longScenarios run in whole tests only.
var longScenarios = []string{
	"autoscale", "backlog", "endpoint", "frozen", "history", "hostile", "large", "overload", "reader", "recover",
	"scale", "unsent",
}

// Every scenario runs once in a small size, and prints all its results. Their values mean nothing.
func TestScenarios(t *testing.T) {
	t.Parallel()
	svc := cmdtest.Build(t, "svc")
	for _, tt := range []struct {
		args   []string
		series int // expected
		ratios int
	}{
		{[]string{"webhooks", "--endpoints", "20", "--organisations", "6", "--rates", "40", "--warm-up", "1s",
			"--measure", "2s", "--backlog", "500", "--idle", "500ms"}, 9, 6},
		{[]string{"drain", "--rows", "2000", "--reference-tasks", "200"}, 5, 3},
		{[]string{"large", "--rows", "4000", "--reference-tasks", "200", "--svc", svc}, 7, 2},
		{[]string{"endpoint", "--endpoints", "5", "--backlog", "2000", "--warm-up", "100ms", "--measure", "500ms"}, 6, 2},
		{[]string{"submit", "--batches", "16", "--organisations", "2", "--svc", svc}, 13, 4},
		{[]string{"fair", "--rows", "5000", "--svc", svc}, 5, 4},
		{[]string{"scale", "--workers", "1,2", "--latencies", "20ms,50ms", "--measure", "200ms", "--warm-up", "500ms"},
			4, 4},
		// Small batches, so that there are tasks enough for a third worker.
		{[]string{"autoscale", "--rows", "3000", "--second", "2500", "--batch", "10", "--in-flight", "2", "--speed", "60",
			"--max-replicas", "3", "--svc", svc}, 13, 5},
		{[]string{"recover", "--rows", "1000", "--rate", "200", "--latency", "5ms", "--warm-up", "500ms",
			"--svc", svc}, 5, 5},
		{[]string{"unsent", "--rows", "2000", "--warm-up", "500ms", "--svc", svc}, 1, 1},
		{[]string{"frozen", "--rows", "1000", "--latency", "5ms", "--warm-up", "500ms", "--thaw", "1s",
			"--svc", svc}, 10, 10},
		// The short backlog must last for several intervals of the feeder.
		{[]string{"backlog", "--short", "20000", "--long", "30000", "--measure", "500ms"}, 2, 1},
		{[]string{"history", "--rows", "14000", "--batches", "4", "--level", "20000", "--measure", "500ms", "--svc", svc},
			22, 12},
		{[]string{"reader", "--reader", "4s", "--measure", "2s", "--warm-up", "2s", "--batches", "4", "--payments", "20",
			"--events", "20"}, 28, 14},
		{[]string{"intents", "--workers", "4", "--measure", "2s", "--rate", "40", "--svc", svc}, 18, 4},
		{[]string{"token", "--workers", "4", "--measure", "1s", "--read-rate", "40", "--svc", svc}, 14, 3},
		{[]string{"mixed", "--organisations", "2", "--measure", "2s", "--rate", "100", "--svc", svc}, 21, 2},
		{[]string{"overload", "--measure", "2s", "--calm", "500ms", "--times", "8", "--pin-cpus=false",
			"--svc", svc}, 14, 8},
		{[]string{"hostile", "--measure", "1s", "--rate", "40", "--bodies", "4", "--unfinished", "20", "--connections",
			"100", "--streams", "20", "--requests", "500", "--pin-cpus=false", "--svc", svc}, 25, 25},
	} {
		t.Run(tt.args[0], func(t *testing.T) {
			if testing.Short() && slices.Contains(longScenarios, tt.args[0]) {
				t.Skip("takes long")
			}
			t.Parallel()
			checkResults(t, append(tt.args, "--runs", "1"), tt.series, tt.ratios)
		})
	}
}

// checkResults runs loadgen and checks that it prints the expected numbers of results, all positive
// unless they may be zero.
func checkResults(t *testing.T, args []string, wantSeries, wantRatios int) {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), append(args, "--json"), &out); err != nil {
		t.Fatal(err)
	}
	var printed struct {
		Series []series `json:"series"`
		Ratios []ratio  `json:"ratios"`
	}
	if err := json.Unmarshal(out.Bytes(), &printed); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if len(printed.Series) != wantSeries || len(printed.Ratios) != wantRatios {
		t.Fatalf("printed %d series and %d ratios: %s", len(printed.Series), len(printed.Ratios), out.String())
	}
	for _, s := range printed.Series {
		if len(s.Values) == 0 || s.Values[0] < 0 || s.Values[0] == 0 && !mayBeZero(s.Name) {
			t.Errorf("%s: %v", s.Name, s.Values)
		}
	}
}

// mayBeZero reports whether the result of a short run may be zero. CPU time is counted in
// hundredths of a second. A small batch may be settled before any row of the other partner. A
// generator without a CPU of its own may be too slow for an overload. After a short overload, a
// busy machine may not recover in time: the value is null. A small backlog may need no further
// worker.
func mayBeZero(name string) bool {
	return strings.Contains(name, "CPU time") || strings.HasPrefix(name, "changes of direction") ||
		strings.Contains(name, "most workers are desired") || strings.Contains(name, "oldest due task") ||
		strings.HasPrefix(name, "rows of the other partner") ||
		strings.HasPrefix(name, "refused") || name == "until latency is as before"
}
