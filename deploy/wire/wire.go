// Package wire provides TCP proxies that inject faults: they end, refuse, freeze, truncate or delay
// connections. Chaos runs and tests put them between the service and its servers.
package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"time"

	"partnerbilling/deploy/local"
)

// Fault describes how a wire disturbs its connections. The zero value only ends the open
// connections, at its beginning and at its end.
type Fault struct {
	// Refuse refuses new connections.
	Refuse bool

	// Freeze stops data on all connections, like a network partition. New connections are accepted.
	// Frozen connections stay open and continue when the fault ends.
	Freeze bool

	// FreezeOpen is Freeze for only the connections that are open when the fault begins. New
	// connections work.
	FreezeOpen bool

	// Swallow accepts new connections, but carries no data on them. It ends them when the fault
	// ends.
	Swallow bool

	// Limit, if not 0, ends a connection after this many bytes in either direction.
	Limit int64

	// Delay and Jitter delay each piece of data by Delay, plus or minus up to Jitter.
	Delay, Jitter time.Duration
}

// keepsConnections reports whether open connections survive the beginning and the end of the fault.
func (f Fault) keepsConnections() bool { return f.Freeze || f.FreezeOpen }

// Wire is a TCP proxy on a port of its own. The port stays reserved while the wire refuses
// connections. Its methods are safe for concurrent use.
type Wire struct {
	port *local.Port

	mu          sync.Mutex // guards the fields below, and the state of the connections
	upstream    string
	listener    net.Listener  // nil while connections are refused
	faults      map[int]Fault // by number
	connections map[*connection]struct{}
	closed      bool
	running     sync.WaitGroup
}

// New starts a wire to the upstream address, HOST:PORT.
func New(upstream string) (*Wire, error) {
	port, err := local.ReservePort()
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	w := &Wire{port: port, upstream: upstream, faults: map[int]Fault{}, connections: map[*connection]struct{}{}}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.listen(); err != nil {
		return nil, errors.Join(err, port.Close())
	}
	return w, nil
}

// Address returns the address that the wire listens on: 127.0.0.1:PORT.
func (w *Wire) Address() string { return w.port.Address() }

// Through returns a server's URL with the wire's address in place of the server's. If it cannot
// parse the URL, it returns the URL unchanged.
func (w *Wire) Through(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server
	}
	u.Host = w.Address()
	return u.String()
}

// Begin begins a fault. number identifies the fault in End; other active faults must have other
// numbers. Active faults are combined. Begin ends open connections, unless the fault freezes them.
// It returns net.ErrClosed after Close.
func (w *Wire) Begin(number int, f Fault) error {
	return w.change(func() {
		w.faults[number] = f
		if !f.keepsConnections() {
			w.endConnections()
			return
		}
		for c := range w.connections {
			c.frozenBy[number] = struct{}{}
		}
	})
}

// End ends a fault. It ends open connections, unless the fault froze them. It returns net.ErrClosed
// after Close.
func (w *Wire) End(number int) error {
	return w.change(func() {
		f, active := w.faults[number]
		delete(w.faults, number)
		if active && !f.keepsConnections() {
			w.endConnections()
		}
		for c := range w.connections {
			delete(c.frozenBy, number)
		}
	})
}

// Redirect changes the upstream address, HOST:PORT, and ends open connections.
func (w *Wire) Redirect(upstream string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.upstream = upstream
	w.endConnections()
}

// open returns the number of open connections.
func (w *Wire) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.connections)
}

// Close ends all connections and releases the port. A second call does nothing.
func (w *Wire) Close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed = true
	w.refuse()
	w.endConnections()
	w.mu.Unlock()
	w.running.Wait()
	_ = w.port.Close()
}

// change updates the faults with do, and then refuses or accepts connections accordingly.
func (w *Wire) change(do func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return net.ErrClosed
	}
	do()
	for c := range w.connections {
		c.notifyLocked()
	}
	if w.any(func(f Fault) bool { return f.Refuse }) {
		w.refuse()
		return nil
	}
	return w.listen()
}

// any reports whether an active fault meets the condition. The caller holds mu.
func (w *Wire) any(is func(Fault) bool) bool {
	for _, f := range w.faults {
		if is(f) {
			return true
		}
	}
	return false
}

// refuse closes the listener. The caller holds mu.
func (w *Wire) refuse() {
	if w.listener != nil {
		_ = w.listener.Close()
		w.listener = nil
	}
}

// endConnections ends all open connections. The caller holds mu.
func (w *Wire) endConnections() {
	for c := range w.connections {
		c.endLocked()
	}
}

// listen starts to accept connections, unless the wire already does. The caller holds mu.
func (w *Wire) listen() error {
	if w.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp", w.port.Address())
	if err != nil {
		return fmt.Errorf("wire to %s: %w", w.upstream, err)
	}
	w.listener = listener
	w.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the listener is closed
			}
			w.accept(conn)
		}
	})
	return nil
}

// accept adds a client's connection to the wire, frozen if a fault says so, and runs it.
func (w *Wire) accept(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.listener == nil {
		_ = conn.Close()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &connection{
		wire: w, client: conn, ctx: ctx, cancel: cancel, upstream: w.upstream,
		frozenBy: map[int]struct{}{}, changed: make(chan struct{}),
	}
	for number, f := range w.faults {
		if f.Freeze || f.Swallow {
			c.frozenBy[number] = struct{}{}
		}
	}
	w.connections[c] = struct{}{}
	w.running.Go(c.run)
}

// limit returns the smallest limit of the active faults, in bytes, or 0 for no limit.
func (w *Wire) limit() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var least int64
	for _, f := range w.faults {
		if f.Limit > 0 && (least == 0 || f.Limit < least) {
			least = f.Limit
		}
	}
	return least
}

// delay returns the delay of the next piece of data: the sum of the active faults' delays, with
// random jitter.
func (w *Wire) delay() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var sum time.Duration
	for _, f := range w.faults {
		sum += f.Delay
		if f.Jitter > 0 {
			sum += time.Duration(rand.Int64N(int64(2*f.Jitter))) - f.Jitter
		}
	}
	return sum
}
