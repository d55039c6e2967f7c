package api

import (
	"cmp"
	"container/list"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/api/peer"
)

// connPhase says what a connection is doing.
type connPhase uint8

const (
	connFresh    connPhase          = iota // no byte has arrived yet
	connIdle                               // between two requests, or lingering after a refused body
	connArriving                           // the head or the body of a request is arriving
	connRunning                            // a request runs, or an answer is being sent
	connPhases   = int(connRunning)        // number of the phases in which a connection may be closed
)

const (
	// freshGrace is the time after which a connection without a byte counts as silent.
	freshGrace = 250 * time.Millisecond
	// arrivingGrace is the time after which an unfinished request counts as slow.
	arrivingGrace = 2 * time.Second
)

// connTable bounds the open connections. If it is full, a new connection replaces an old one. The
// old one is, in this order: one that is silent, one whose request arrives slowly, one that is
// idle, one that is fresh or whose request is arriving. Within each kind, the connection that has
// been in its phase for longest comes first. Connections on which a caller has authenticated are
// closed last. If requests run on all connections, the new one is closed.
//
// A connTable is safe for concurrent use.
type connTable struct {
	capacity   int
	perAddress int // the maximum for one peer address; 0 means no bound
	metrics    connMetrics

	mu        sync.Mutex
	open      active
	byAddress map[string]int
	unknown   waitingConns // on which no caller has authenticated yet
	known     waitingConns // on which a caller has authenticated
}

// waitingConns lists connections by phase, the longest in it first. The elements are *conn.
type waitingConns [connPhases]list.List

// connEntry is the state of a connection in its table. The mutex of the table protects it.
type connEntry struct {
	table   *connTable
	address string // of the peer; "" if addresses are not counted
	phase   connPhase
	since   time.Time     // when the phase began; stale while a request runs
	known   bool          // a caller has authenticated
	element *list.Element // in waitingConns; nil while a request runs, and once the connection is closed
	closed  bool          // no longer in the table
}

func newConnTable(cfg Config) *connTable {
	t := &connTable{
		capacity:   connectionCapacity(cfg.MemoryLimit),
		perAddress: cfg.MaxConnectionsPerAddress, byAddress: map[string]int{},
	}
	t.metrics = newConnMetrics(cfg.Metrics, t)
	return t
}

// minConnections is the minimum capacity, however small the memory limit is.
const minConnections = 64

// connectionCapacity returns the number of connections that a memory limit allows.
func connectionCapacity(memoryLimit int64) int {
	return max(int(memoryLimit/memoryDivisor/connectionCost), minConnections)
}

// add adds a new connection. If the table is full, it closes another connection. It returns nil if
// it has closed the new connection instead.
func (t *connTable) add(c net.Conn) *conn {
	added, victim := t.insert(c)
	if victim != nil {
		_ = victim.Close()
	}
	return added
}

// insert adds a connection, and returns it with the connection that must be closed. Either may be
// nil.
func (t *connTable) insert(c net.Conn) (added *conn, victim net.Conn) {
	address := ""
	if t.perAddress > 0 {
		address = peer.FromNet(c.RemoteAddr()).String()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.perAddress > 0 && t.byAddress[address] >= t.perAddress {
		t.metrics.address.Inc()
		return nil, c
	}
	if t.open.count() >= t.capacity {
		old := t.victim()
		if old == nil {
			t.metrics.full.Inc()
			return nil, c
		}
		t.metrics.closed[old.entry.phase].Inc()
		t.remove(old)
		victim = old.Conn
	}
	added = &conn{Conn: c, entry: connEntry{table: t, address: address}}
	t.open.begin()
	t.byAddress[address]++
	t.enter(added, connFresh)
	return added, victim
}

// victim returns the connection to close for a new one, nil if requests run on all. The caller of
// victim holds mu.
func (t *connTable) victim() *conn { return cmp.Or(t.unknown.victim(), t.known.victim()) }

// victim returns the connection of the lists to close first, nil if the lists are empty.
func (w *waitingConns) victim() *conn {
	return cmp.Or(w.longerThan(freshGrace, connFresh), w.longerThan(arrivingGrace, connArriving), w.longest(connIdle),
		older(w.longest(connFresh), w.longest(connArriving)))
}

// longerThan returns the connection that has been in a phase for longest. It returns nil if that is
// shorter than least, or if no connection is in the phase.
func (w *waitingConns) longerThan(least time.Duration, phase connPhase) *conn {
	c := w.longest(phase)
	if c != nil && time.Since(c.entry.since) < least {
		return nil
	}
	return c
}

// older returns the connection that has been in its phase for longer. Either may be nil.
func older(a, b *conn) *conn {
	if a == nil || b != nil && b.entry.since.Before(a.entry.since) {
		return b
	}
	return a
}

// longest returns the connection that has been in a phase for longest, nil if none is in it.
func (w *waitingConns) longest(phase connPhase) *conn {
	if first := w[phase].Front(); first != nil {
		c, _ := first.Value.(*conn)
		return c
	}
	return nil
}

// waiting returns the lists that a connection belongs to.
func (t *connTable) waiting(e *connEntry) *waitingConns {
	if e.known {
		return &t.known
	}
	return &t.unknown
}

// enter moves a connection to a phase. The caller of enter holds mu.
func (t *connTable) enter(c *conn, phase connPhase) {
	e := &c.entry
	t.unlist(e)
	e.phase = phase
	if phase != connRunning && !e.closed {
		e.since = time.Now() //nolint:forbidigo // measures only how long a client takes
		e.element = t.waiting(e)[phase].PushBack(c)
	}
}

// unlist takes a connection out of waitingConns. The caller of unlist holds mu.
func (t *connTable) unlist(e *connEntry) {
	if e.element != nil {
		t.waiting(e)[e.phase].Remove(e.element)
		e.element = nil
	}
}

// remove takes a connection out of the table, if it is still in it. The caller of remove holds mu.
func (t *connTable) remove(c *conn) {
	e := &c.entry
	if e.closed {
		return
	}
	t.unlist(e)
	e.closed = true
	t.open.end()
	if t.byAddress[e.address]--; t.byAddress[e.address] == 0 {
		delete(t.byAddress, e.address)
	}
}

// setPhase records what the connection does from now on.
func (c *conn) setPhase(phase connPhase) {
	t := c.entry.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enter(c, phase)
}

// beginArriving records that the first bytes of a request have arrived.
func (c *conn) beginArriving() {
	t := c.entry.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.entry.phase < connArriving {
		t.enter(c, connArriving)
	}
}

// markKnown records that a caller has authenticated. Call it only while a request runs, when no
// list holds the connection.
func (c *conn) markKnown() {
	t := c.entry.table
	t.mu.Lock()
	defer t.mu.Unlock()
	c.entry.known = true
}

// leaveTable takes the connection out of its table.
func (c *conn) leaveTable() {
	t := c.entry.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(c)
}

// connMetrics counts the connections that were closed for new ones, and the new ones that were
// refused.
type connMetrics struct {
	closed        [connPhases]prometheus.Counter // by phase
	full, address prometheus.Counter             // new ones that were refused
	paced         prometheus.Counter             // new ones that waited for the rate of the listener
}

func newConnMetrics(registry *prometheus.Registry, t *connTable) connMetrics {
	closed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "svc_http_connections_closed_total",
		Help: "Connections closed to accept new ones, by what they were doing (fresh, idle, arriving); new ones " +
			"refused because requests ran on all (full) or because of the limit of their address (address).",
	}, []string{"reason"})
	paced := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "svc_http_connections_paced_total",
		Help: "Connections that waited because connections were opened faster than the process accepts them.",
	})
	registry.MustRegister(closed, paced,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "svc_http_connections", Help: "Open HTTP connections."},
			func() float64 { return float64(t.open.count()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "svc_http_connections_limit",
			Help: "Greatest number of open HTTP connections."},
			func() float64 { return float64(t.capacity) }))
	return connMetrics{
		closed: [connPhases]prometheus.Counter{
			connFresh: closed.WithLabelValues("fresh"), connIdle: closed.WithLabelValues("idle"),
			connArriving: closed.WithLabelValues("arriving"),
		},
		full: closed.WithLabelValues("full"), address: closed.WithLabelValues("address"), paced: paced,
	}
}
