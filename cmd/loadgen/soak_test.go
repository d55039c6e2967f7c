package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"partnerbilling/cmd/cmdtest"
)

// A short run has each kind of event once, and breaks no promise.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	t.Parallel()
	var out bytes.Buffer
	err := run(t.Context(), []string{
		"soak", "--svc", cmdtest.Build(t, "svc"), "--seed", "3", "--duration", "20s", "--capacity", "3s", "--part", "0.3",
		"--restarts", "1", "--failovers", "1", "--json",
	}, &out)
	var printed struct{ Ratios []ratio }
	if decodeErr := json.Unmarshal(out.Bytes(), &printed); err != nil || decodeErr != nil {
		t.Fatalf("%v, %v: %s", err, decodeErr, out.String())
	}
	for _, r := range printed.Ratios {
		if !r.met() {
			t.Errorf("missed: %+v", r)
		}
	}
	if len(printed.Ratios) != 3 {
		t.Errorf("%d ratios: %s", len(printed.Ratios), out.String())
	}
}

func TestSoakRefusesAnInvalidPlan(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--restarts=0", "--failovers=-1", "--part=0", "--part=2", "--duration=0s"} {
		if err := run(t.Context(), []string{"soak", flag}, io.Discard); err == nil ||
			!strings.Contains(err.Error(), "--duration") {
			t.Errorf("%s: error %v", flag, err)
		}
	}
}

// Every event is in the schedule, in order, within the duration, and the last one is a restart.
func TestSoakSchedule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		restarts, failovers := rapid.IntRange(1, 20).Draw(t, "restarts"), rapid.IntRange(0, 20).Draw(t, "failovers")
		seed := rapid.Uint64().Draw(t, "seed")
		events := soakSchedule(seed, time.Hour, restarts, failovers)
		if !slices.Equal(events, soakSchedule(seed, time.Hour, restarts, failovers)) {
			t.Fatal("the same seed returns another schedule")
		}
		counts := map[soakPhase]int{}
		for i, e := range events {
			counts[e.Kind]++
			if e.At < 0 || e.At >= time.Hour || i > 0 && e.At <= events[i-1].At {
				t.Fatalf("event %d is at %s", i, e.At)
			}
		}
		if counts[phaseRestart] != restarts || counts[phaseFailover] != failovers || counts[phaseMigration] != 1 ||
			counts[phaseBackup] != 1 || events[len(events)-1].Kind != phaseRestart {
			t.Fatalf("events %v", events)
		}
	})
}

// roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A bug in the log is found however much follows it.
func TestSoakChecksWholeLogs(t *testing.T) {
	t.Parallel()
	for bug, want := range map[string]bool{"WARNING: DATA RACE": true, "slow statement": false} {
		f, p := soakFleet{recorder: newSoakRecorder(nil)}, &process{name: "svc api"}
		for _, line := range slices.Concat([]string{bug}, slices.Repeat([]string{"request"}, 10_000)) {
			if _, err := io.WriteString(&p.stderr, line+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		f.checkLog(&soakProcess{process: p})
		if got := len(f.recorder.breaches()) > 0; got != want {
			t.Errorf("%s: breaches %q", bug, f.recorder.breaches())
		}
	}
}

// The recorder tells the answers that a phase permits from breaches.
func TestSoakRecorder(t *testing.T) {
	t.Parallel()
	broken := io.MultiReader(strings.NewReader("{"), brokenReader{})
	for name, tt := range map[string]struct {
		phase      soakPhase
		status     int // 0: no answer
		retryAfter string
		body       io.Reader
		created    bool // before the phase
		wantBroken bool
	}{
		"a success":                          {phase: phaseCalm, status: 200},
		"503":                                {phase: phaseRestart, status: 503, retryAfter: "1", wantBroken: true},
		"503 in a failover":                  {phase: phaseFailover, status: 503, retryAfter: "1"},
		"503 without Retry-After":            {phase: phaseFailover, status: 503, wantBroken: true},
		"500 in a failover":                  {phase: phaseFailover, status: 500, wantBroken: true},
		"409":                                {phase: phaseMigration, status: 409, wantBroken: true},
		"409 of an intent before":            {phase: phaseFailover, status: 409, created: true},
		"409 without a failover":             {phase: phaseBackup, status: 409, created: true, wantBroken: true},
		"no answer":                          {phase: phaseRestart, wantBroken: true},
		"no answer in a failover":            {phase: phaseFailover, wantBroken: true},
		"an answer that breaks off":          {phase: phaseCalm, status: 200, body: broken, wantBroken: true},
		"503 while the capacity is measured": {phase: phaseCapacity, status: 503, retryAfter: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSoakRecorder(roundTripper(func(*http.Request) (*http.Response, error) {
				if tt.status == 0 {
					return nil, errors.New("refused")
				}
				body := tt.body
				if body == nil {
					body = strings.NewReader("{}")
				}
				return &http.Response{
					StatusCode: tt.status, Header: http.Header{"Retry-After": {tt.retryAfter}},
					Body: io.NopCloser(body),
				}, nil
			}))
			if tt.phase != phaseCalm {
				defer r.begin(tt.phase)()
			}
			ctx := withKind(t.Context(), "kind")
			if tt.created {
				ctx = mayEndLater(ctx, span{})
			}
			req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			if resp, err := r.RoundTrip(req); err == nil {
				_ = resp.Body.Close()
			}
			if got := len(r.breaches()) > 0; got != tt.wantBroken {
				t.Errorf("breaches %q", r.breaches())
			}
			if sent := r.of("kind", tt.phase).sent; sent != 1 {
				t.Errorf("%d requests in the phase", sent)
			}
		})
	}
}

// A request belongs to the phase of the highest precedence that it overlaps.
func TestSoakPhase(t *testing.T) {
	t.Parallel()
	r := newSoakRecorder(nil)
	if got := r.phase(since(time.Now())); got != phaseCalm {
		t.Errorf("before all: %s", got)
	}
	began := time.Now()
	endRestart := r.begin(phaseRestart)
	r.begin(phaseFailover)()
	if got := r.phase(since(began)); got != phaseFailover {
		t.Errorf("a request over a failover: %s", got)
	}
	time.Sleep(time.Millisecond) // the clock must move on
	if got := r.phase(since(time.Now())); got != phaseRestart {
		t.Errorf("a request of a restart: %s", got)
	}
	endRestart()
}

// brokenReader is the end of an answer that breaks off.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A webhook without a valid signature is refused, and counts as a breach.
func TestReceiverVerifies(t *testing.T) {
	t.Parallel()
	r := newHAReceiver()
	defer r.Close()
	answer := httptest.NewRecorder()
	r.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}")))
	if answer.Code != http.StatusUnauthorized || r.refused != 1 || len(r.keys) != 0 {
		t.Errorf("status %d, %d refused, events %v", answer.Code, r.refused, r.keys)
	}
}

// A payment agrees with its webhooks if one event tells its status.
func TestReceiverComparesPayments(t *testing.T) {
	t.Parallel()
	r := newHAReceiver()
	defer r.Close()
	r.statuses["told"] = intentStatuses{"event": "Settled"}
	r.statuses["twice"] = intentStatuses{"event": "Settled", "other": "Settled"}
	for id, want := range map[string]bool{"told": true, "twice": false, "never": false} {
		if got := r.checkPayment(id, "Settled") == ""; got != want {
			t.Errorf("%s: agrees %t", id, got)
		}
	}
	if r.checkPayment("told", "Failed") == "" {
		t.Error("another status agrees")
	}
}
