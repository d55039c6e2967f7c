package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// soakPhase is the phase of a soak run: what operators do, or what fails, during a request.
type soakPhase string

// The phases, in order of precedence: a request belongs to the first phase that it overlaps.
// phaseFailover lasts from the kill of the primary until every API is ready again. phaseCalm is the
// phase of all other requests.
const (
	phaseFailover  soakPhase = "failover"
	phaseCapacity  soakPhase = "capacity" // the measurement of the capacity before the load
	phaseRebuild   soakPhase = "standby rebuilt"
	phaseMigration soakPhase = "migration"
	phaseBackup    soakPhase = "backup"
	phaseRestart   soakPhase = "rolling restart"
	phaseCalm      soakPhase = "calm"
)

// soakPhases lists the phases of the load, in the order of reports.
var soakPhases = []soakPhase{
	phaseCalm, phaseRestart, phaseMigration, phaseBackup, phaseRebuild, phaseFailover,
}

// precedence lists the phases that have windows of time, in order of precedence.
var precedence = []soakPhase{
	phaseFailover, phaseCapacity, phaseRebuild, phaseMigration, phaseBackup, phaseRestart,
}

// soakTally counts the requests of a kind in a phase.
type soakTally struct {
	sent        int
	unavailable int // answered with 503 and Retry-After
	errors      int // other answers of 4xx and 5xx, and requests without an answer
	latencies   []time.Duration
}

// add adds the counts of another tally.
func (t *soakTally) add(o *soakTally) {
	t.sent, t.unavailable, t.errors = t.sent+o.sent, t.unavailable+o.unavailable, t.errors+o.errors
	t.latencies = append(t.latencies, o.latencies...)
}

// soakKey is a kind of request in a phase.
type soakKey struct {
	kind  string
	phase soakPhase
}

// soakWindow is a time during which a phase lasts. While it is open, it has no end.
type soakWindow struct {
	phase soakPhase
	span
	open bool
}

// soakRecorder is an HTTP transport of partners that counts the answers to requests, and measures
// their latencies, by kind of request and phase. It counts each answer on its own, even if the
// client then repeats the request. It is safe for concurrent use.
type soakRecorder struct {
	next  http.RoundTripper
	began time.Time // breaches have times relative to it

	mu      sync.Mutex
	windows []*soakWindow
	tallies map[soakKey]*soakTally
	broken  breaches
}

func newSoakRecorder(next http.RoundTripper) *soakRecorder {
	return &soakRecorder{next: next, began: time.Now(), tallies: map[soakKey]*soakTally{}}
}

// begin begins a window of the phase, which lasts until end is called.
func (r *soakRecorder) begin(phase soakPhase) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &soakWindow{phase: phase, span: span{from: time.Now()}, open: true}
	r.windows = append(r.windows, w)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		w.to, w.open = time.Now(), false
	}
}

// phase returns the phase of a request with the span at, which has just ended. The caller holds mu.
func (r *soakRecorder) phase(at span) soakPhase {
	found := len(precedence)
	for _, w := range r.windows {
		if w.open || at.overlaps(w.span) {
			found = min(found, slices.Index(precedence, w.phase))
		}
	}
	if found == len(precedence) {
		return phaseCalm
	}
	return precedence[found]
}

// soakKindKey is the key in a request's context for the kind of the request.
type soakKindKey struct{}

// withKind returns a context for requests of the kind. Requests without a kind are not recorded.
func withKind(ctx context.Context, kind string) context.Context {
	return context.WithValue(ctx, soakKindKey{}, kind)
}

// soakCreatedKey is the key in a request's context for the span in which the request's payment
// intent was created.
type soakCreatedKey struct{}

// mayEndLater returns a context for requests that cancel a payment intent. The intent was created
// in the span. If a failover has happened since, the service answers 409 at first. It cancels the
// intent later, when the gateway has confirmed that no payment was lost.
func mayEndLater(ctx context.Context, created span) context.Context {
	return context.WithValue(ctx, soakCreatedKey{}, created)
}

// endsLater reports whether an answer is the 409 that mayEndLater allows. The caller holds mu.
func (r *soakRecorder) endsLater(req *http.Request, status int) bool {
	created, ok := req.Context().Value(soakCreatedKey{}).(span)
	return ok && status == http.StatusConflict && slices.ContainsFunc(r.windows, func(w *soakWindow) bool {
		return w.phase == phaseFailover && (w.open || created.from.Before(w.to))
	})
}

// tokenKind is the kind of requests for access tokens.
const tokenKind = "fetch a token"

// RoundTrip implements http.RoundTripper. It reads the whole answer: an answer that breaks off
// counts as none.
func (r *soakRecorder) RoundTrip(req *http.Request) (*http.Response, error) {
	kind, recorded := req.Context().Value(soakKindKey{}).(string)
	if strings.HasSuffix(req.URL.Path, "/oauth2/token") {
		kind = tokenKind
	}
	began := time.Now()
	resp, err := r.next.RoundTrip(req)
	if err == nil {
		var body []byte
		body, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	if recorded && !isCancelled(req) {
		r.record(kind, req, resp, err, since(began))
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// record counts an answer. Every answer must be a success, or the 409 that mayEndLater allows. In
// failovers and in the measurement of the capacity, it may also be 503 with Retry-After. Other
// answers are breaches.
func (r *soakRecorder) record(kind string, req *http.Request, resp *http.Response, err error, at span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	phase := r.phase(at)
	t := r.tallies[soakKey{kind, phase}]
	if t == nil {
		t = &soakTally{}
		r.tallies[soakKey{kind, phase}] = t
	}
	t.sent++
	mayRefuse := phase == phaseFailover || phase == phaseCapacity
	switch {
	case err == nil && (resp.StatusCode < http.StatusBadRequest || r.endsLater(req, resp.StatusCode)):
		t.latencies = append(t.latencies, at.to.Sub(at.from))
		return
	case err == nil && resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		if t.unavailable++; mayRefuse {
			return
		}
	default:
		t.errors++
	}
	offset := at.from.Sub(r.began).Round(time.Millisecond)
	took := at.to.Sub(at.from).Round(time.Millisecond)
	if err != nil {
		r.broken.add("not answered, "+string(phase), "%s after %s: %s %s: %v",
			offset, took, req.Method, req.URL.Path, err)
		return
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	r.broken.add("refused, "+string(phase), "%s after %s: %s %s: %s, Retry-After %q: %.300s",
		offset, took, req.Method, req.URL.Path, resp.Status, resp.Header.Get("Retry-After"), body)
}

// total returns the sum of the phases' tallies over all kinds, with sorted latencies.
func (r *soakRecorder) total(phases ...soakPhase) *soakTally {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := &soakTally{}
	for key, t := range r.tallies {
		if slices.Contains(phases, key.phase) {
			all.add(t)
		}
	}
	slices.Sort(all.latencies)
	return all
}

// of returns the tally of a kind in a phase, with sorted latencies.
func (r *soakRecorder) of(kind string, phase soakPhase) *soakTally {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := &soakTally{}
	if t := r.tallies[soakKey{kind, phase}]; t != nil {
		all.add(t)
	}
	slices.Sort(all.latencies)
	return all
}

// breach records a breach of the run that is not about an answer.
func (r *soakRecorder) breach(kind, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken.add(kind, format, args...)
}

// breaches returns all breaches as lines of text.
func (r *soakRecorder) breaches() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken.lines()
}
