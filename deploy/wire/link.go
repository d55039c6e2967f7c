package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// link is one connection through a wire.
type link struct {
	wire     *Wire
	client   net.Conn
	upstream string // as of its beginning
	ctx      context.Context
	cancel   context.CancelFunc

	// Guarded by the wire's lock.
	frozenBy map[int]struct{} // numbers of faults
	changed  chan struct{}    // closed when frozenBy has changed
}

// end ends the link. The caller has the wire's lock.
func (l *link) end() {
	l.cancel()
	_ = l.client.Close()
}

// wake lets the link look at its faults again. The caller has the wire's lock.
func (l *link) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// run carries data both ways until both sides have ended, or the link has.
func (l *link) run() {
	defer l.forget()
	if !l.pass() {
		return
	}
	server, err := (&net.Dialer{}).DialContext(l.ctx, "tcp", l.upstream)
	if err != nil {
		return
	}
	stop := context.AfterFunc(l.ctx, func() { _ = server.Close() })
	defer stop()
	defer func() { _ = server.Close() }()
	var pumps sync.WaitGroup
	pumps.Go(func() { l.pump(server, l.client) })
	pumps.Go(func() { l.pump(l.client, server) })
	pumps.Wait()
}

func (l *link) forget() {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	l.end()
	delete(l.wire.links, l)
}

// pump carries data one way. The end of the source is passed on; any other error ends the link.
func (l *link) pump(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for carried, limit := int64(0), l.wire.limit(); ; {
		n, readErr := from.Read(buffer)
		if !l.pass() || !l.wait(l.wire.delay()) {
			return
		}
		if limit > 0 {
			n = int(min(int64(n), limit-carried))
		}
		carried += int64(n)
		_, writeErr := to.Write(buffer[:n])
		switch {
		case writeErr != nil || limit > 0 && carried == limit:
			l.cut()
			return
		case errors.Is(readErr, io.EOF):
			if half, ok := to.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
			return
		case readErr != nil:
			l.cut()
			return
		}
	}
}

func (l *link) cut() {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	l.end()
}

// pass waits while the link is frozen. It reports whether the link lives.
func (l *link) pass() bool {
	for {
		l.wire.mu.Lock()
		frozen, changed := len(l.frozenBy) > 0, l.changed
		l.wire.mu.Unlock()
		if !frozen {
			return l.ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
			return false
		}
	}
}

func (l *link) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}
