package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// awaitWithin is how long events that were committed may be on their way before a run is given up.
const awaitWithin = 2 * time.Minute

// receivers are the partners' servers, each on a port of its own. They note when each event that counts arrives first.
type receivers struct {
	urls   []string
	ports  map[int]int // endpoints by their ports
	server *fasthttp.Server
	served sync.WaitGroup

	mu      sync.Mutex
	release chan struct{}        // open while one in ten hangs; nil while none does
	sent    map[string]time.Time // when each event that counts was committed
	got     map[string]time.Time // when each event arrived
	missing int                  // of those sent
	arrived chan struct{}        // a token when none is missing any more
}

func newReceivers(ctx context.Context, n int) (*receivers, error) {
	r := &receivers{arrived: make(chan struct{}, 1), ports: make(map[int]int, n)}
	r.forget()
	r.server = &fasthttp.Server{Handler: r.receive, CloseOnShutdown: true}
	for i := range n {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(fmt.Errorf("receiver %d: %w", i, err), r.close())
		}
		r.urls = append(r.urls, "http://"+ln.Addr().String()+"/")
		r.ports[portOf(ln.Addr())] = i
		r.served.Go(func() { _ = r.server.Serve(ln) }) // until close
	}
	return r, nil
}

func portOf(addr net.Addr) int {
	tcp, _ := addr.(*net.TCPAddr)
	return tcp.Port
}

func (r *receivers) close() error {
	r.setHanging(false)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := r.server.ShutdownWithContext(ctx)
	r.served.Wait()
	return err
}

func (r *receivers) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent, r.got, r.missing = map[string]time.Time{}, map[string]time.Time{}, 0
}

// setHanging makes one in ten hang: it takes requests and does not answer. What hangs is answered when that ends.
func (r *receivers) setHanging(hanging bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.release != nil {
		close(r.release)
		r.release = nil
	}
	if hanging {
		r.release = make(chan struct{})
	}
}

func (r *receivers) committed(id string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent[id] = at
	if _, already := r.got[id]; !already {
		r.missing++
	}
}

// receive takes a notification.
func (r *receivers) receive(c *fasthttp.RequestCtx) {
	release := r.note(string(c.Request.Header.Peek("webhook-id")), time.Now())
	if release != nil && hangs(r.ports[portOf(c.LocalAddr())]) {
		<-release
	}
}

func (r *receivers) note(id string, at time.Time) (release chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, again := r.got[id]; again {
		return r.release
	}
	r.got[id] = at
	if _, counts := r.sent[id]; counts {
		if r.missing--; r.missing == 0 {
			select {
			case r.arrived <- struct{}{}:
			default:
			}
		}
	}
	return r.release
}

// await waits until every event that counts has arrived, once all are committed, and returns how long each took.
func (r *receivers) await(ctx context.Context) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, awaitWithin)
	defer cancel()
	for {
		spans, missing := r.spans()
		if missing == 0 {
			return spans, nil
		}
		select {
		case <-r.arrived:
		case <-ctx.Done():
			return nil, fmt.Errorf("%d events have not arrived: %w", missing, ctx.Err())
		}
	}
}

// spans are how long events took; none while some are missing.
func (r *receivers) spans() (spans []time.Duration, missing int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.missing > 0 {
		return nil, r.missing
	}
	for id, sent := range r.sent {
		spans = append(spans, max(0, r.got[id].Sub(sent)))
	}
	return spans, 0
}
