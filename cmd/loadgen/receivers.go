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

// arrivalTimeout bounds the wait for committed events to arrive, and for their attempts to be
// recorded.
const arrivalTimeout = 2 * time.Minute

// receivers holds the partners' servers for webhooks, one for each endpoint, each on a port of its
// own. They record when each event first arrives.
type receivers struct {
	urls   []string    // by endpoint
	ports  map[int]int // endpoints by port
	server *fasthttp.Server
	served sync.WaitGroup

	mu      sync.Mutex
	release chan struct{}        // closed to release hanging requests; nil while no endpoint hangs
	sent    map[string]time.Time // commit times of the measured events, by id
	got     map[string]time.Time // arrival times of all events, by id
	missing int                  // number of measured events that have not arrived
	arrived chan struct{}        // signalled when missing becomes 0
}

// newReceivers starts n servers, for the endpoints 0 to n-1.
func newReceivers(ctx context.Context, n int) (*receivers, error) {
	r := &receivers{arrived: make(chan struct{}, 1), ports: make(map[int]int, n)}
	r.reset()
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

// close answers hanging requests and stops the servers.
func (r *receivers) close() error {
	r.setHanging(false)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := r.server.ShutdownWithContext(ctx)
	r.served.Wait()
	return err
}

// reset forgets all events.
func (r *receivers) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent, r.got, r.missing = map[string]time.Time{}, map[string]time.Time{}, 0
}

// setHanging makes one endpoint in ten hang: its server accepts requests and does not answer. When
// hanging ends, the held requests are answered.
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

// committed records that a measured event was committed at the time. The event may have arrived
// before.
func (r *receivers) committed(id string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent[id] = at
	if _, arrived := r.got[id]; !arrived {
		r.missing++
	}
}

// receive handles the delivery of an event. It holds the answer while the endpoint hangs.
func (r *receivers) receive(c *fasthttp.RequestCtx) {
	release := r.record(string(c.Request.Header.Peek("webhook-id")), time.Now())
	if release != nil && hangs(r.ports[portOf(c.LocalAddr())]) {
		<-release
	}
}

// record records the arrival of an event. It returns the channel that is closed to release hanging
// requests, or nil if no endpoint hangs.
func (r *receivers) record(id string, at time.Time) (release chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, again := r.got[id]; again {
		return r.release
	}
	r.got[id] = at
	if _, measured := r.sent[id]; measured {
		if r.missing--; r.missing == 0 {
			select {
			case r.arrived <- struct{}{}:
			default:
			}
		}
	}
	return r.release
}

// await waits until every measured event has arrived, and returns their latencies from commit to
// arrival. All commits must be recorded before.
func (r *receivers) await(ctx context.Context) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, arrivalTimeout)
	defer cancel()
	for {
		latencies, missing := r.latencies()
		if missing == 0 {
			return latencies, nil
		}
		select {
		case <-r.arrived:
		case <-ctx.Done():
			return nil, fmt.Errorf("%d events have not arrived: %w", missing, ctx.Err())
		}
	}
}

// latencies returns the latencies of the measured events, or the number of missing events if there
// are any.
func (r *receivers) latencies() (latencies []time.Duration, missing int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.missing > 0 {
		return nil, r.missing
	}
	for id, sent := range r.sent {
		latencies = append(latencies, max(0, r.got[id].Sub(sent)))
	}
	return latencies, 0
}
