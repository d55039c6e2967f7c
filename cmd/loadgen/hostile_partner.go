package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"
)

// greedyBatches is the number of batches that the greedy partner reads in rotation.
const greedyBatches = 4

// greedy returns the attack of a partner that does only what is allowed, but much of it at the same
// time: held requests and reads of batches whose answers have 600 KB, and streams.
func (a *attackers) greedy() attack {
	p := a.Partners[0]
	stream := "GET /webhooks/listen HTTP/1.1\r\nHost: x\r\nAuthorization: " + bearer(p.Token) + "\r\n\r\n"
	name := fmt.Sprintf("a partner's %g held requests/s, %g reads/s of 600 KB, %d streams", a.Polls, a.Reads, a.Streams)
	return attack{name, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return a.openStreams(ctx, stream) })
		group.Go(func() error {
			return keepCalling(ctx, a.Polls, func(int) *call {
				return &call{url: largeBatchURL(p, 0), authorization: bearer(p.Token), prefer: "wait=30"}
			})
		})
		group.Go(func() error {
			return keepCalling(ctx, a.Reads, func(n int) *call {
				return &call{url: largeBatchURL(p, n%greedyBatches), authorization: bearer(p.Token)}
			})
		})
		return group.Wait()
	}}
}

// streamsPerSecond is the rate at which the greedy partner opens its streams.
const streamsPerSecond = 100

// openStreams opens streams, and keeps their connections open until the context ends, even those
// whose streams the API refuses.
func (a *attackers) openStreams(ctx context.Context, request string) error {
	opened := &openedConns{open: map[net.Conn]struct{}{}}
	defer opened.closeAll()
	began := time.Now()
	for n := range a.Streams {
		due := began.Add(time.Duration(n) * time.Second / streamsPerSecond)
		if !sleep(ctx, time.Until(due)) {
			return nil
		}
		c, err := opened.dial(a.Address)
		if err != nil {
			return err
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, request)
	}
	<-ctx.Done()
	return nil
}

// largeBatchURL returns the URL of the n-th batch of submitLarge.
func largeBatchURL(p attackingPartner, n int) string { return fmt.Sprintf("%s/greedy%%20%d", p.URL, n) }

// submitLarge submits the large batches that the greedy partner reads.
func (h *hostile) submitLarge(ctx context.Context, p *batchClient) error {
	for n := range greedyBatches {
		if _, err := p.submit(ctx, batchOfLongReferences(fmt.Sprint("greedy ", n), 53)); err != nil {
			return err
		}
	}
	return nil
}

// keepCalling makes calls at a rate until the context ends. Then it closes their connections. next
// returns the call with the number n. keepCalling ignores the answers.
func keepCalling(ctx context.Context, perSecond float64, next func(n int) *call) error {
	c := newLoadClient(openConns)
	opened := &openedConns{open: map[net.Conn]struct{}{}}
	c.http.Dial = opened.dial
	stop := context.AfterFunc(ctx, opened.closeAll)
	defer stop()
	err := pace(ctx, perSecond, math.MaxInt, func(_ context.Context, n int, _ time.Time) error {
		_ = c.send(next(n), func(int, []byte) error { return nil })
		return nil
	})
	if errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// openedConns records the connections of a client, to close all of them at once. It is safe for
// concurrent use.
type openedConns struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

// dial opens and records a connection. It fails after closeAll.
func (o *openedConns) dial(address string) (net.Conn, error) {
	c, err := fasthttp.Dial(address)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, errors.Join(http.ErrServerClosed, c.Close())
	}
	o.open[c] = struct{}{}
	return c, nil
}

// closeAll closes all recorded connections.
func (o *openedConns) closeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for c := range o.open {
		_ = c.Close()
	}
}
