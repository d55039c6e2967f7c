package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every scenario runs once in the smallest size. What it measures then says nothing; that it measures all it should does.
func TestScenarios(t *testing.T) {
	t.Parallel()
	svc := buildSvc(t)
	chart := filepath.Join(t.TempDir(), "scale.svg")
	for _, tt := range []struct {
		args   []string
		series int // with a value for each run
		ratios int
	}{
		{[]string{"webhooks", "--endpoints", "20", "--organisations", "6", "--rates", "40", "--warm-up", "1s", "--measure", "2s",
			"--backlog", "500", "--idle", "500ms"}, 9, 6},
		{[]string{"drain", "--rows", "2000", "--reference-tasks", "200"}, 5, 3},
		{[]string{"submit", "--batches", "4", "--organisations", "2", "--svc", svc}, 13, 4},
		{[]string{"fair", "--rows", "5000", "--svc", svc}, 5, 4},
		{[]string{"scale", "--workers", "1,2", "--latencies", "20ms,50ms", "--measure", "200ms", "--warm-up", "500ms", "--chart", chart}, 4, 4},
		{[]string{"recover", "--rows", "1000", "--rate", "200", "--latency", "5ms", "--warm-up", "500ms", "--svc", svc}, 5, 5},
		{[]string{"unsent", "--rows", "2000", "--warm-up", "500ms", "--svc", svc}, 1, 1},
		{[]string{"frozen", "--rows", "1000", "--latency", "5ms", "--warm-up", "500ms", "--thaw", "1s", "--svc", svc}, 10, 10},
		// The short backlog lasts for several looks of who keeps it up: one of 2,000 rows came to its end between two of them.
		{[]string{"backlog", "--short", "20000", "--long", "30000", "--history", "1000", "--measure", "500ms"}, 3, 2},
		{[]string{"intents", "--workers", "4", "--measure", "2s", "--rate", "40", "--svc", svc}, 18, 3},
		{[]string{"token", "--workers", "4", "--measure", "1s", "--read-rate", "40", "--svc", svc}, 14, 2},
		{[]string{"mixed", "--organisations", "2", "--measure", "2s", "--rate", "100", "--svc", svc}, 21, 1},
		{[]string{"overload", "--measure", "2s", "--calm", "500ms", "--times", "8", "--apart=false", "--svc", svc}, 14, 7},
	} {
		t.Run(tt.args[0], func(t *testing.T) {
			t.Parallel()
			measures(t, append(tt.args, "--runs", "1"), tt.series, tt.ratios)
			if tt.args[0] == "scale" {
				isSVG(t, chart, "settled", "workers", "latency of the rail, ms", "rows/s")
			}
		})
	}
}

// measures runs loadgen and checks that it prints figures, all above zero but for those that may be nothing.
func measures(t *testing.T, args []string, wantSeries, wantRatios int) {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), append(args, "--json"), &out); err != nil {
		t.Fatal(err)
	}
	var figures struct {
		Series []series `json:"series"`
		Ratios []ratio  `json:"ratios"`
	}
	if err := json.Unmarshal(out.Bytes(), &figures); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if len(figures.Series) != wantSeries || len(figures.Ratios) != wantRatios {
		t.Fatalf("printed %d series and %d ratios: %s", len(figures.Series), len(figures.Ratios), out.String())
	}
	for _, s := range figures.Series {
		if len(s.Values) == 0 || s.Values[0] < 0 || s.Values[0] == 0 && !mayBeNothing(s.Name) {
			t.Errorf("%s: %v", s.Name, s.Values)
		}
	}
}

// mayBeNothing tells figures that so short a run may leave at zero: CPU time comes in hundredths of a second, a small batch may
// be settled before any row of the other partner is, and a generator that has no CPU of its own may be too late to overload anybody.
func mayBeNothing(name string) bool {
	return strings.Contains(name, "CPU time") || strings.HasPrefix(name, "rows of the other partner") || strings.HasPrefix(name, "refused")
}

// isSVG checks that a file is well-formed XML with these texts.
func isSVG(t *testing.T, path string, texts ...string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := xml.NewDecoder(bytes.NewReader(content))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range texts {
		if !strings.Contains(string(content), ">"+text+"<") {
			t.Errorf("the chart does not say %q", text)
		}
	}
}
