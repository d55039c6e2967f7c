package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// gateway is a payment gateway in memory: a rail on which the first debit under a key succeeds,
// unless the key is cancelled. It records the debits with their times. Over HTTP, it serves workers
// in processes of their own.
type gateway struct {
	rail.Unlimited
	latency time.Duration // of each call of Debit
	url     string
	http    *http.Server
	served  chan error // receives the error of http when it ends

	mu       sync.Mutex
	debited  map[string]gatewayDebit // by key
	list     []rail.ListedDebit      // in the order of their times
	lookedUp map[string]bool         // keys looked up before they had a debit; true if cancelled
	last     time.Time               // of the last debit, also of one that was refused
	gap      time.Duration           // longest time between two debits since resetGap
}

// gatewayDebit is the first debit under a key.
type gatewayDebit struct {
	held rail.Particulars
	at   time.Time
}

// gatewayKey is the key with which workers sign their calls of the gateway.
var gatewayKey = rail.SigningKey{ID: "loadgen", Secret: []byte("loadgen")}

// startGateway starts a gateway whose debits take the latency. It serves until close.
func (b *bench) startGateway(ctx context.Context, latency time.Duration) (*gateway, error) {
	g := &gateway{
		latency: latency, debited: map[string]gatewayDebit{}, lookedUp: map[string]bool{}, served: make(chan error, 1),
	}
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

// close stops the gateway and ends its connections.
func (g *gateway) close() error {
	err := g.http.Close()
	if served := <-g.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// variables returns the environment variables that make a process of svc use the gateway.
func (g *gateway) variables() []string {
	return []string{
		"SVC_RAIL=http", "SVC_RAIL_URL=" + g.url, fmt.Sprintf("SVC_RAIL_KEY=%s:%s", gatewayKey.ID, gatewayKey.Secret),
	}
}

// Debit implements rail.Rail. It records the debits at once, and reports them after the latency. If
// ctx ends before that, it reports no status, although the debits are recorded.
func (g *gateway) Debit(ctx context.Context, debits []rail.Debit, report func(int, rail.Result)) {
	answers := make([]rail.Result, len(debits))
	for i, d := range debits {
		held, cancelled := g.record(d, time.Now())
		switch {
		case cancelled:
			answers[i].Status = rail.Cancelled
		case held.ConflictsWith(d):
			answers[i].Status = rail.Conflict
		default:
			answers[i].Status = rail.Succeeded
		}
	}
	abandoned := wait(ctx, g.latency) != nil
	for i, answer := range answers {
		if abandoned {
			answer = rail.Result{}
		}
		report(i, answer)
	}
}

// record records a debit, unless its key has one already or is cancelled. It returns the
// particulars of the first debit under the key.
func (g *gateway) record(d rail.Debit, now time.Time) (held rail.Particulars, cancelled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gap, g.last = max(g.gap, now.Sub(g.last)), now
	if g.lookedUp[d.Key] {
		return rail.Particulars{}, true
	}
	if _, known := g.debited[d.Key]; !known {
		g.debited[d.Key] = gatewayDebit{d.Particulars(), now}
		at := models.MillisOf(time.Now()) // under the lock, so that the list is in order
		g.list = append(g.list, rail.ListedDebit{Key: d.Key, Particulars: d.Particulars(), DebitedAt: at})
	}
	return g.debited[d.Key].held, false
}

// Lookup implements rail.Rail. A key without a debit is NotFound, or Cancelled after Cancel.
func (g *gateway) Lookup(_ context.Context, keys []string, report func(int, rail.Result)) {
	for i, key := range keys {
		report(i, g.resolve(key, false))
	}
}

// Cancel implements rail.Rail. Later debits under a cancelled key do not succeed.
func (g *gateway) Cancel(_ context.Context, keys []string, report func(int, rail.Result)) {
	for i, key := range keys {
		report(i, g.resolve(key, true))
	}
}

// List implements rail.Rail. The list is complete up to the present millisecond, exclusive.
func (g *gateway) List(_ context.Context, q rail.ListQuery) (rail.ListPage, error) {
	if err := q.Validate(); err != nil {
		return rail.ListPage{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	page := rail.ListPage{CompleteTo: models.MillisOf(time.Now())}
	start, _ := slices.BinarySearchFunc(g.list, q.From, func(d rail.ListedDebit, from models.Millis) int {
		return cmp.Compare(d.DebitedAt, from)
	})
	for i, d := range g.list[start:] {
		full := len(page.Debits) > q.Limit && d.DebitedAt > g.list[start+i-1].DebitedAt
		if full || d.DebitedAt >= min(q.To, page.CompleteTo) {
			break
		}
		if d.DebitedAt > q.From || d.Key > q.AfterKey {
			page.Debits = append(page.Debits, d)
		}
	}
	slices.SortFunc(page.Debits, func(a, b rail.ListedDebit) int {
		return cmp.Or(cmp.Compare(a.DebitedAt, b.DebitedAt), cmp.Compare(a.Key, b.Key))
	})
	if len(page.Debits) > q.Limit {
		page.Debits, page.More = page.Debits[:q.Limit], true
	}
	return page, nil
}

// resolve returns the status of a key. If cancel is set and the key has no debit, resolve cancels
// the key first.
func (g *gateway) resolve(key string, cancel bool) rail.Result {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d, known := g.debited[key]; known {
		return rail.Result{Status: rail.Succeeded, Held: d.held}
	}
	g.lookedUp[key] = g.lookedUp[key] || cancel
	if g.lookedUp[key] {
		return rail.Result{Status: rail.Cancelled}
	}
	return rail.Result{Status: rail.NotFound}
}

// lookedUpCount returns the number of keys that were looked up or cancelled before they had a
// debit. It still counts a key that is debited later.
func (g *gateway) lookedUpCount() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.lookedUp)
}

// debitedAt returns the time of the first debit under a key, if there is one.
func (g *gateway) debitedAt(key string) (time.Time, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, known := g.debited[key]
	return d.at, known
}

// count returns the number of debited keys.
func (g *gateway) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.debited)
}

// resetGap begins the measurement that longestGap returns.
func (g *gateway) resetGap(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last, g.gap = now, 0
}

// longestGap returns the longest time without a debit since resetGap.
func (g *gateway) longestGap(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.gap, now.Sub(g.last))
}
