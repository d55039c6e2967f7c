package main

import (
	"bytes"
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

// The chart is well-formed, and has titles, axes and both lines.
func TestDraw(t *testing.T) {
	var out bytes.Buffer
	if err := draw(strings.NewReader(measured), &out); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"settled", "Rail at 50ms, 64 debits in flight per worker", "latency of the rail, ms", "rows/s"} {
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
	byWorkers, byLatency, err := read(strings.NewReader(measured))
	if err != nil || len(byWorkers) != 2 || len(byLatency) != 2 {
		t.Fatalf("%+v, %+v, %v", byWorkers, byLatency, err)
	}
	if p := byWorkers[0]; p.rate != 1200 || p.limit != 1280 || p.workers != 1 {
		t.Errorf("first point %+v", p)
	}
	for _, other := range []string{"", "{}", `{"series":[{"name":"noop","values":[1]}]}`} {
		if _, _, err := read(strings.NewReader(other)); err == nil {
			t.Errorf("%q was read", other)
		}
	}
}
