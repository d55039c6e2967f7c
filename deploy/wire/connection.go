package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// connection is a client's TCP connection that a Wire forwards to its upstream.
type connection struct {
	wire     *Wire
	client   net.Conn
	upstream string // the wire's upstream when the client connected
	ctx      context.Context
	cancel   context.CancelFunc

	// The wire's lock guards the fields below.
	frozenBy map[int]struct{} // the numbers of the faults that freeze the connection
	changed  chan struct{}    // closed when frozenBy changes
}

// endLocked closes the connection. The caller holds the wire's lock.
func (c *connection) endLocked() {
	c.cancel()
	_ = c.client.Close()
}

// notifyLocked reports a change of frozenBy to waiting goroutines. The caller holds the wire's
// lock.
func (c *connection) notifyLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// run dials the upstream once the connection is not frozen. It copies data in both directions until
// both sides have closed or the connection is ended. At its end, also after a failed dial, it
// closes the client's side and removes the connection from the wire.
func (c *connection) run() {
	defer c.remove()
	if !c.awaitThaw() {
		return
	}
	server, err := (&net.Dialer{}).DialContext(c.ctx, "tcp", c.upstream)
	if err != nil {
		return
	}
	stop := context.AfterFunc(c.ctx, func() { _ = server.Close() })
	defer stop()
	defer func() { _ = server.Close() }()
	var copies sync.WaitGroup
	copies.Go(func() { c.copyData(server, c.client) })
	copies.Go(func() { c.copyData(c.client, server) })
	copies.Wait()
}

// remove ends the connection and removes it from the wire.
func (c *connection) remove() {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.endLocked()
	delete(c.wire.connections, c)
}

// copyData copies data in one direction, each piece after the wire's delay. At the end of the
// source it half-closes the target. It ends the connection after an error, or once it has copied
// the wire's limit. It reads the limit only at its beginning.
func (c *connection) copyData(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	copied, limit := int64(0), c.wire.limit()
	for {
		n, readErr := from.Read(buffer)
		if !c.awaitThaw() || !c.sleep(c.wire.delay()) {
			return
		}
		if limit > 0 {
			n = int(min(int64(n), limit-copied))
		}
		copied += int64(n)
		_, writeErr := to.Write(buffer[:n])
		switch {
		case writeErr != nil || limit > 0 && copied == limit:
			c.end()
			return
		case errors.Is(readErr, io.EOF):
			if half, ok := to.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
			return
		case readErr != nil:
			c.end()
			return
		}
	}
}

// end closes the connection.
func (c *connection) end() {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.endLocked()
}

// awaitThaw waits while the connection is frozen. It returns false if the connection has ended.
func (c *connection) awaitThaw() bool {
	for {
		c.wire.mu.Lock()
		frozen, changed := len(c.frozenBy) > 0, c.changed
		c.wire.mu.Unlock()
		if !frozen {
			return c.ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
			return false
		}
	}
}

// sleep waits for d. It returns false if the connection ends first.
func (c *connection) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}
