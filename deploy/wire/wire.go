// Package wire carries TCP connections between two parts of a system and breaks them on demand: connections
// end, are refused, freeze, end in the middle of a message, or become slow. It is for chaos runs and for tests.
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

// Fault is a defect of a wire. The zero value ends the open connections and does nothing else.
type Fault struct {
	// Refuse refuses new connections.
	Refuse bool

	// Freeze accepts connections and carries nothing on them, on open ones nor on new ones. Open connections
	// stay open at its beginning, and frozen ones go on at its end, as after a network partition.
	Freeze bool

	// FreezeOpen is Freeze for the connections that are open at its beginning; new ones work.
	FreezeOpen bool

	// Swallow accepts new connections, carries nothing on them, and ends them at its end.
	Swallow bool

	// Limit, if not 0, ends a connection once it has carried this many bytes in one direction.
	Limit int64

	// Delay holds back each piece of data, longer or shorter by up to Jitter.
	Delay, Jitter time.Duration
}

// keepsConnections reports whether connections live through the fault's beginning and end.
func (f Fault) keepsConnections() bool { return f.Freeze || f.FreezeOpen }

// Wire listens on a port of its own and connects each connection to the upstream. The port stays reserved while
// connections are refused. Its methods may be called from any goroutine.
type Wire struct {
	port *local.Port

	mu       sync.Mutex
	upstream string
	listener net.Listener // nil while connections are refused
	faults   map[int]Fault
	links    map[*link]struct{}
	closed   bool
	running  sync.WaitGroup
}

// New starts a wire to an address.
func New(upstream string) (*Wire, error) {
	port, err := local.ReservePort()
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	w := &Wire{port: port, upstream: upstream, faults: map[int]Fault{}, links: map[*link]struct{}{}}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.listen(); err != nil {
		return nil, errors.Join(err, port.Close())
	}
	return w, nil
}

// Address returns the address that the wire listens on.
func (w *Wire) Address() string { return w.port.Address() }

// Through returns a URL with the wire's address instead of the server's own.
func (w *Wire) Through(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	u.Host = w.Address()
	return u.String()
}

// Begin begins a fault under a number that no other active fault has. Several faults add up. Connections that are
// open end, unless the fault freezes them.
func (w *Wire) Begin(number int, f Fault) error {
	return w.change(func() {
		w.faults[number] = f
		if !f.keepsConnections() {
			w.endLinks()
			return
		}
		for l := range w.links {
			l.frozenBy[number] = struct{}{}
		}
	})
}

// End ends the fault of a number. Open connections end, unless the fault froze them.
func (w *Wire) End(number int) error {
	return w.change(func() {
		f, active := w.faults[number]
		delete(w.faults, number)
		if active && !f.keepsConnections() {
			w.endLinks()
		}
		for l := range w.links {
			delete(l.frozenBy, number)
		}
	})
}

// Redirect sends new connections to another address. Open connections end.
func (w *Wire) Redirect(upstream string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.upstream = upstream
	w.endLinks()
}

// Open returns the number of open connections.
func (w *Wire) Open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.links)
}

// Close ends all connections and gives the port free. A second call does nothing.
func (w *Wire) Close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed = true
	w.refuse()
	w.endLinks()
	w.mu.Unlock()
	w.running.Wait()
	_ = w.port.Close()
}

// change changes the faults, and then refuses or accepts connections as they say. Frozen links look again.
func (w *Wire) change(do func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return net.ErrClosed
	}
	do()
	for l := range w.links {
		l.wake()
	}
	if w.any(func(f Fault) bool { return f.Refuse }) {
		w.refuse()
		return nil
	}
	return w.listen()
}

func (w *Wire) any(is func(Fault) bool) bool {
	for _, f := range w.faults {
		if is(f) {
			return true
		}
	}
	return false
}

func (w *Wire) refuse() {
	if w.listener != nil {
		_ = w.listener.Close()
		w.listener = nil
	}
}

func (w *Wire) endLinks() {
	for l := range w.links {
		l.end()
	}
}

// listen accepts connections if the wire does not do so already.
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
				return // closed
			}
			w.accept(conn)
		}
	})
	return nil
}

func (w *Wire) accept(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.listener == nil {
		_ = conn.Close()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{
		wire: w, client: conn, ctx: ctx, cancel: cancel, upstream: w.upstream,
		frozenBy: map[int]struct{}{}, changed: make(chan struct{}),
	}
	for number, f := range w.faults {
		if f.Freeze || f.Swallow {
			l.frozenBy[number] = struct{}{}
		}
	}
	w.links[l] = struct{}{}
	w.running.Go(l.run)
}

// limit returns the least number of bytes that a connection may carry in one direction, 0 for no limit.
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

// delay draws for how long a piece of data is held back.
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
