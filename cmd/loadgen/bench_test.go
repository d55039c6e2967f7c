package main

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"
)

// A ratio with an empty series is not reported. Any other one has a verdict, even if its divisor is
// 0.
func TestReportRatios(t *testing.T) {
	t.Parallel()
	empty, zero, two := &series{}, &series{Values: []float64{0}}, &series{Name: "s", Values: []float64{2}}
	for name, tt := range map[string]struct {
		ratio ratio
		want  string // a pattern of the report
		json  string
	}{
		"met":    {medianRatio("r", two, two, 1), `r +1 +at least 1 +met`, `{"name":"r","value":1,"target":1}`},
		"missed": {medianRatio("r", zero, two, 1), `r +0 +at least 1 +MISSED`, `{"name":"r","value":0,"target":1}`},
		"0 ÷ 0": {medianRatio("r", zero, zero, -1), `r +NaN +at most 1 +MISSED`,
			`{"name":"r","target":-1,"value":null}`},
		"2 ÷ 0": {medianRatio("r", two, zero, 1), `r +\+Inf +at least 1 +MISSED`,
			`{"name":"r","target":1,"value":null}`},
		"2 ÷ 0, a maximum": {medianRatio("r", two, zero, -1), `r +\+Inf +at most 1 +MISSED`,
			`{"name":"r","target":-1,"value":null}`},
		"nothing measured":   {medianRatio("r", empty, empty, 1), `runs\s*$`, ""},
		"no dividend":        {medianRatio("r", empty, two, -1), `runs\s*$`, ""},
		"no divisor":         {medianRatio("r", two, empty, 1), `runs\s*$`, ""},
		"a bound":            {two.bounded(-3), ` 2 +at most 3 +met`, `{"name":"s","value":2,"target":-3}`},
		"a bound of nothing": {empty.bounded(-3), `runs\s*$`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var table, out bytes.Buffer
			if err := (&bench{out: &table, calls: &callCounts{}}).report(nil, []ratio{tt.ratio}); err != nil {
				t.Fatal(err)
			}
			if !regexp.MustCompile(tt.want).MatchString(table.String()) {
				t.Errorf("printed %q, want %s", table.String(), tt.want)
			}
			if err := (&bench{out: &out, json: true, calls: &callCounts{}}).report(nil, []ratio{tt.ratio}); err != nil {
				t.Fatal(err)
			}
			var printed struct{ Ratios []json.RawMessage }
			if err := json.Unmarshal(out.Bytes(), &printed); err != nil {
				t.Fatal(err)
			}
			var got string
			for _, r := range printed.Ratios {
				got += string(r)
			}
			if got != tt.json {
				t.Errorf("JSON %s, want %s", got, tt.json)
			}
		})
	}
}

// A run that waited in vain has no value in JSON, and misses a maximum.
func TestReportInfiniteValues(t *testing.T) {
	t.Parallel()
	s := &series{Name: "s", Unit: "s", Values: []float64{1, math.Inf(1)}}
	var out bytes.Buffer
	b := &bench{out: &out, json: true, calls: &callCounts{}}
	if err := b.report([]*series{s}, []ratio{{Name: "r", Value: s.max(), Target: -5}}); err != nil {
		t.Fatal(err)
	}
	want := `{"ratios":[{"name":"r","target":-5,"value":null}],"series":[{"name":"s","unit":"s","values":[1,null]}]}`
	if got := strings.TrimSpace(out.String()); got != want {
		t.Errorf("printed %s, want %s", got, want)
	}
}
