package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestChaos is a short run with one fault of each kind and more: nothing may be lost or debited twice.
func TestChaos(t *testing.T) {
	t.Parallel()
	svc := buildSvc(t)
	var out bytes.Buffer
	err := run(t.Context(), []string{
		"chaos", "--svc", svc, "--seed", "5", "--faults", "24", "--every", "400ms", "--rows", "3000", "--json",
	}, &out)
	var report chaosReport
	if decodeErr := json.Unmarshal(out.Bytes(), &report); err != nil || decodeErr != nil {
		t.Fatalf("%v, %v: %s", err, decodeErr, out.String())
	}
	if report.Partners.Rows != 3000 || len(report.ByKind) != len(faultShapes) {
		t.Errorf("it did less than it should: %+v", report)
	}
	rows := 0
	for _, o := range report.Outcomes {
		rows += o.Rows
	}
	if rows != 3000 {
		t.Errorf("%d rows have an outcome: %+v", rows, report.Outcomes)
	}
}

func TestChaosSchedule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seed, n := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 2000).Draw(t, "faults")
		kinds := rapid.SliceOfDistinct(rapid.SampledFrom(faultKindNames()), rapid.ID[string]).Draw(t, "kinds")
		faults, err := chaosSchedule(seed, kinds, n, time.Second)
		if err != nil || len(faults) != n {
			t.Fatalf("%d faults, %v", len(faults), err)
		}
		again, err := chaosSchedule(seed, kinds, n, time.Second)
		if diff := cmp.Diff(faults, again); diff != "" || err != nil {
			t.Fatalf("the same seed makes another schedule: %v\n%s", err, diff)
		}
		if len(kinds) == 0 {
			kinds = faultKindNames()
		}
		checkSchedule(t, faults, kinds)
	})
}

func checkSchedule(t *rapid.T, faults []fault, kinds []string) {
	times, steps, last := map[string]int{}, int64(0), time.Duration(0)
	for _, f := range faults {
		times[string(f.Kind)]++
		if f.At < last || f.At > time.Duration(f.Number)*time.Second {
			t.Fatalf("%s after %s", f, last)
		}
		last = f.At
		if f.Kind == stepClock {
			steps += f.Amount
		}
	}
	for _, kind := range kinds {
		if n := times[kind]; n < len(faults)/len(kinds) || n > len(faults)/len(kinds)+1 {
			t.Fatalf("%s comes %d times among %d", kind, n, len(faults))
		}
	}
	if steps > mostSteps {
		t.Fatalf("the clock moves by %d ms: batches would be gone after their retention", steps)
	}
}

func TestChaosWithAnUnknownKind(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), []string{"chaos", "--kinds", "earthquake"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `no kind "earthquake"`) {
		t.Errorf("error %v", err)
	}
}

func TestEveryWireIsInASchedule(t *testing.T) {
	t.Parallel()
	for _, shape := range faultShapes {
		for _, target := range shape.targets {
			if strings.Contains(target, "/") != slices.Contains(wireNames, target) {
				t.Errorf("%s: target %q", shape.kind, target)
			}
		}
	}
}

// A member is started again however it ends, until it is told to end.
func TestMember(t *testing.T) {
	t.Parallel()
	m := &member{name: "shell", svc: "/bin/sh", args: []string{"-c", "trap 'exit 0' TERM; echo ready $$; while :; do sleep 0.01; done"},
		said: &transcript{}, done: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- m.run(t.Context()) }()
	first := m.current(t.Context())
	if err := m.kill(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	second := first
	for second == nil || second.Pid == first.Pid {
		if t.Context().Err() != nil {
			t.Fatal("it is not started again")
		}
		second = m.current(t.Context())
	}
	ready := []byte(fmt.Sprint("ready ", second.Pid))
	for said := []byte(nil); !bytes.Contains(said, ready); said, _ = m.said.read() { // its trap is set
		if !sleep(t.Context(), time.Millisecond) {
			t.Fatalf("it printed %s", said)
		}
	}
	if err := m.stop(time.Minute); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := second.Signal(os.Interrupt); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("it lives on: %v", err)
	}
}

func TestTranscriptNoticesAPanic(t *testing.T) {
	t.Parallel()
	var said transcript
	for range 3 * transcriptSize / 10 {
		_, _ = said.Write([]byte("all well.\n"))
	}
	_, _ = said.Write([]byte("panic: it is not\n\ngoroutine 1\n"))
	end, fatal := said.read()
	if len(end) > 2*transcriptSize || !bytes.Contains(end, []byte("goroutine 1")) || len(fatal) != 1 {
		t.Errorf("%d bytes, %q", len(end), fatal)
	}
}
