package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"partnerbilling/api/client"
	"partnerbilling/cmd/cmdtest"
	"partnerbilling/models"
)

// A short run has at least one fault of each kind. Nothing may be lost or debited twice.
func TestChaos(t *testing.T) {
	t.Parallel()
	svc := cmdtest.Build(t, "svc")
	var out bytes.Buffer
	err := run(t.Context(), []string{
		"chaos", "--svc", svc, "--seed", "5", "--faults", "24", "--every", "400ms", "--rows", "3000", "--json",
	}, &out)
	var report chaosReport
	if decodeErr := json.Unmarshal(out.Bytes(), &report); err != nil || decodeErr != nil {
		t.Fatalf("%v, %v: %s", err, decodeErr, out.String())
	}
	if report.Partners.Rows != 3000 || len(report.ByKind) != len(faultSpecs) {
		t.Errorf("the run did not submit and inject everything: %+v", report)
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
			t.Fatalf("the same seed returns another schedule: %v\n%s", err, diff)
		}
		if len(kinds) == 0 {
			kinds = faultKindNames()
		}
		checkSchedule(t, faults, kinds)
	})
}

// checkSchedule checks the times of the faults, how often each kind comes, and the sum of the clock
// steps.
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
	if steps > maxTotalStep {
		t.Fatalf("the clock moves by %d ms, want at most %d", steps, maxTotalStep)
	}
}

// The large clock steps cross the end of the time for attempts, and the deadline of a batch.
func TestLargeClockSteps(t *testing.T) {
	t.Parallel()
	closing := (models.SettleWithin - models.LastAttemptBefore).Milliseconds()
	deadline, retention := models.SettleWithin.Milliseconds(), models.BatchRetention.Milliseconds()
	if closingStep <= closing || closingStep >= deadline || deadlineStep <= deadline || maxTotalStep >= retention {
		t.Errorf("steps of %d and %d ms, %d ms in all", closingStep, deadlineStep, maxTotalStep)
	}
}

func TestChaosRefusesAnUnknownKind(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), []string{"chaos", "--kinds", "earthquake"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `no kind "earthquake"`) {
		t.Errorf("error %v", err)
	}
}

func TestFaultTargetsAreWires(t *testing.T) {
	t.Parallel()
	for _, spec := range faultSpecs {
		for _, target := range spec.targets {
			if strings.Contains(target, "/") != slices.Contains(wireNames, target) {
				t.Errorf("%s: target %q", spec.kind, target)
			}
		}
	}
}

// A member is restarted whenever it ends, until it is stopped.
func TestMemberIsRestarted(t *testing.T) {
	t.Parallel()
	m := &member{
		name: "shell", svc: "/bin/sh", output: &transcript{}, done: make(chan struct{}),
		args: []string{"-c", "trap 'exit 0' TERM; echo ready $$; while :; do sleep 0.01; done"},
	}
	ended := make(chan error, 1)
	go func() { ended <- m.run(t.Context()) }()
	first := m.current(t.Context())
	if err := m.kill(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	second := first
	deadline := time.Now().Add(time.Minute)
	for second == nil || second.Pid == first.Pid {
		if time.Now().After(deadline) {
			t.Fatal("the member was not restarted")
		}
		second = m.current(t.Context())
	}
	ready := []byte(fmt.Sprint("ready ", second.Pid)) // the trap is set
	for output := []byte(nil); !bytes.Contains(output, ready); output, _ = m.output.read() {
		if !sleep(t.Context(), time.Millisecond) || time.Now().After(deadline) {
			t.Fatalf("the member printed %q, want %q", output, ready)
		}
	}
	if err := m.stop(time.Minute); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := second.Signal(os.Interrupt); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("the stopped process still runs: %v", err)
	}
}

// A fault that comes right after the end of a process does not fail the run.
func TestMemberHasJustEnded(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "/bin/true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	m := &member{name: "ended", process: cmd.Process}
	if err := m.kill(t.Context(), time.Second); err != nil || m.stayDown != time.Second {
		t.Errorf("kill: %v; it stays down for %s", err, m.stayDown)
	}
	if err := m.pause(t.Context(), 0); err != nil {
		t.Errorf("pause: %v", err)
	}
}

// A marker is found however the output is split into writes, and only once.
func TestTranscriptJoinsWrites(t *testing.T) {
	t.Parallel()
	const text = "all well\npanic: it is not\ngoroutine 1"
	for split := range len(text) {
		var output transcript
		for _, part := range []string{text[:split], text[split:], " [running]\nWARNING: DATA RA", "CE"} {
			_, _ = io.WriteString(&output, part)
			output.read()
		}
		want := []string{"panic: it is not", "WARNING: DATA RACE"}
		if _, fatal := output.read(); !slices.Equal(fatal, want) {
			t.Errorf("split at %d: %q", split, fatal)
		}
	}
}

func TestTranscriptDetectsAPanic(t *testing.T) {
	t.Parallel()
	var output transcript
	for range 3 * transcriptSize / 10 {
		_, _ = output.Write([]byte("all well.\n"))
	}
	_, _ = output.Write([]byte("panic: it is not\n\ngoroutine 1\n"))
	tail, fatal := output.read()
	if len(tail) > 2*transcriptSize || !bytes.Contains(tail, []byte("goroutine 1")) || len(fatal) != 1 {
		t.Errorf("%d bytes, %q", len(tail), fatal)
	}
}

// An answer shows a row only if its references and its amount are as submitted.
func TestShows(t *testing.T) {
	t.Parallel()
	submitted := client.Row{CustomerReference: "c", RowReference: "r", Amount: 1}
	for row, want := range map[client.RowStatus]bool{
		{CustomerReference: "c", RowReference: "r", Amount: 1, State: "pending"}: true,
		{CustomerReference: "d", RowReference: "r", Amount: 1}:                   false,
		{CustomerReference: "c", RowReference: "s", Amount: 1}:                   false,
		{CustomerReference: "c", RowReference: "r", Amount: 2}:                   false,
	} {
		if got := shows(row, submitted); got != want {
			t.Errorf("%+v shows %+v: %t", row, submitted, got)
		}
	}
}
