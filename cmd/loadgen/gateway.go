package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"partnerbilling/jobs/rail"
)

// gateway is a payment gateway that remembers in memory what it has debited, and when it was first asked to. It serves the HTTP
// contract, for workers that are processes of their own.
type gateway struct {
	rail.Unlimited
	latency time.Duration
	url     string
	http    *http.Server
	served  chan error

	mu      sync.Mutex
	debited map[string]gatewayDebit // by key
	asked   map[string]bool         // keys that a look-up or a cancellation was about; true: it is cancelled
	last    time.Time               // when a debit came last
	gap     time.Duration           // the longest time without one, since watch
}

// gatewayDebit is the first debit under a key.
type gatewayDebit struct {
	held rail.Particulars
	at   time.Time
}

var gatewayKey = rail.SigningKey{ID: "loadgen", Secret: []byte("loadgen")}

// startGateway serves until close.
func (b *bench) startGateway(ctx context.Context, latency time.Duration) (*gateway, error) {
	g := &gateway{latency: latency, debited: map[string]gatewayDebit{}, asked: map[string]bool{}, served: make(chan error, 1)}
	handler, err := rail.NewServer(rail.ServerConfig{Rail: g, Keys: []rail.SigningKey{gatewayKey}, Log: b.log})
	if err != nil {
		return nil, err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g.url = "http://" + ln.Addr().String()
	g.http = &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { g.served <- g.http.Serve(ln) }()
	return g, nil
}

func (g *gateway) close() error {
	err := g.http.Close()
	if served := <-g.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// variables are those of a process that debits there.
func (g *gateway) variables() []string {
	return []string{"SVC_RAIL=http", "SVC_RAIL_URL=" + g.url, fmt.Sprintf("SVC_RAIL_KEY=%s:%s", gatewayKey.ID, gatewayKey.Secret)}
}

// Debit implements rail.Rail.
func (g *gateway) Debit(ctx context.Context, debits []rail.Debit, report func(int, rail.Result)) {
	answers := make([]rail.Result, len(debits))
	for i, d := range debits {
		held, closed := g.note(d, time.Now())
		switch {
		case closed:
			answers[i].Status = rail.Cancelled
		case held.ConflictsWith(d):
			answers[i].Status = rail.Conflict
		default:
			answers[i].Status = rail.Succeeded
		}
	}
	late := wait(ctx, g.latency) != nil
	for i, answer := range answers {
		if late {
			answer = rail.Result{}
		}
		report(i, answer)
	}
}

// note remembers a debit, unless its key is known or cancelled. It returns what the key holds.
func (g *gateway) note(d rail.Debit, now time.Time) (held rail.Particulars, cancelled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gap, g.last = max(g.gap, now.Sub(g.last)), now
	if g.asked[d.Key] {
		return rail.Particulars{}, true
	}
	if _, again := g.debited[d.Key]; !again {
		g.debited[d.Key] = gatewayDebit{d.Particulars(), now}
	}
	return g.debited[d.Key].held, false
}

// Lookup implements rail.Rail.
func (g *gateway) Lookup(_ context.Context, keys []string, report func(int, rail.Result)) {
	for i, key := range keys {
		report(i, g.tell(key, false))
	}
}

// Cancel implements rail.Rail.
func (g *gateway) Cancel(_ context.Context, keys []string, report func(int, rail.Result)) {
	for i, key := range keys {
		report(i, g.tell(key, true))
	}
}

// tell is what became of a key, which is cancelled first if it must be.
func (g *gateway) tell(key string, cancel bool) rail.Result {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d, known := g.debited[key]; known {
		return rail.Result{Status: rail.Succeeded, Held: d.held}
	}
	g.asked[key] = g.asked[key] || cancel
	if g.asked[key] {
		return rail.Result{Status: rail.Cancelled}
	}
	return rail.Result{Status: rail.NotFound}
}

// askedAbout is how many keys without a debit a look-up or a cancellation was about.
func (g *gateway) askedAbout() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.asked)
}

// first is the first debit under a key.
func (g *gateway) first(key string) (gatewayDebit, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, known := g.debited[key]
	return d, known
}

// when is the time of the first debit under a key.
func (g *gateway) when(key string) (time.Time, bool) {
	first, known := g.first(key)
	return first.at, known
}

// count is how many keys have been debited.
func (g *gateway) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.debited)
}

// watch begins to look for the longest time without a debit.
func (g *gateway) watch(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last, g.gap = now, 0
}

// longestGap is the longest time without a debit since watch began.
func (g *gateway) longestGap(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.gap, now.Sub(g.last))
}
