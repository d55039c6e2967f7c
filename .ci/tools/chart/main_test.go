package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

const measured = `{"series":[
	{"name":"1 workers, rail at 50ms","unit":"rows/s","values":[1200,1220,1180]},
	{"name":"2 workers, rail at 50ms","unit":"rows/s","values":[2400]},
	{"name":"rail at 20ms, 2 workers","unit":"rows/s","values":[6000]},
	{"name":"rail at 500ms, 2 workers","unit":"rows/s","values":[250]}],
	"ratios":[{"name":"1 workers, rail at 50ms ÷ 1280"},{"name":"2 workers, rail at 50ms ÷ 2560"},
	{"name":"rail at 20ms, 2 workers ÷ 6400"},{"name":"rail at 500ms, 2 workers ÷ 256"}]}`

const recorded = `{"series":[{"name":"wave 1: most desired workers","values":[4]}],"ratios":[],"timelines":[[
	{"second":1,"backlog":9000,"oldestDueSeconds":0,"desired":2,"running":2},
	{"second":2,"backlog":8000,"oldestDueSeconds":1,"desired":4,"running":2},
	{"second":3,"backlog":0,"oldestDueSeconds":0,"desired":4,"running":4}],
	[{"second":1}]]}`

// The charts are well-formed, and have titles, axes and all lines.
func TestDraw(t *testing.T) {
	for input, texts := range map[string][]string{
		measured: {"settled", "Rail at 50ms, 64 debits in flight per worker", "latency of the rail, ms", "rows/s"},
		recorded: {"Rows that are not settled", "desired", "running", "Age of the oldest due task", "seconds"},
	} {
		testDraw(t, input, texts)
	}
}

func testDraw(t *testing.T, input string, texts []string) {
	t.Helper()
	var out bytes.Buffer
	if err := draw(strings.NewReader(input), &out); err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the chart does not contain %q", text)
		}
	}
	decoder := xml.NewDecoder(&out)
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestRead(t *testing.T) {
	var r results
	if err := json.Unmarshal([]byte(measured), &r); err != nil {
		t.Fatal(err)
	}
	byWorkers, byLatency, err := read(r)
	if err != nil || len(byWorkers) != 2 || len(byLatency) != 2 {
		t.Fatalf("%+v, %+v, %v", byWorkers, byLatency, err)
	}
	if p := byWorkers[0]; p.rate != 1200 || p.limit != 1280 || p.workers != 1 {
		t.Errorf("first point %+v", p)
	}
	for _, other := range []string{"", "{}", `{"series":[{"name":"noop","values":[1]}]}`} {
		if err := draw(strings.NewReader(other), io.Discard); err == nil {
			t.Errorf("%q was drawn", other)
		}
	}
}
