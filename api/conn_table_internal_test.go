package api

import (
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// clientEnd is the server's side of a connection from an address. It records that it was closed.
type clientEnd struct {
	net.Conn
	name, address string
	closed        *[]string
}

func (p *clientEnd) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(p.address), Port: 1} }

func (p *clientEnd) Close() error {
	*p.closed = append(*p.closed, p.name)
	return nil
}

func newTestTable(capacity, perAddress int) *connTable {
	t := newConnTable(Config{
		MemoryLimit: 1, MaxConnectionsPerAddress: perAddress, Metrics: prometheus.NewRegistry(),
	})
	t.capacity = capacity
	return t
}

func TestFullTableClosesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table, closed := newTestTable(9, 0), []string{}
		add := func(name string, known bool, phase connPhase) {
			c := table.add(&clientEnd{name: name, address: "192.0.2.1", closed: &closed})
			if c == nil {
				return
			}
			if known {
				c.setPhase(connRunning)
				c.markKnown()
			}
			c.setPhase(phase)
		}
		add("known idle", true, connIdle)
		add("known slow", true, connArriving)
		add("known running", true, connRunning)
		add("idle", false, connIdle)
		add("slow", false, connArriving)
		add("silent", false, connFresh)
		add("running", false, connRunning)
		<-time.After(arrivingGrace)
		add("arriving", false, connArriving)
		<-time.After(time.Millisecond)
		add("fresh", false, connFresh)
		for range 8 {
			add("new", true, connRunning)
		}
		want := []string{"silent", "slow", "idle", "arriving", "fresh", "known slow", "known idle", "new"}
		if !slices.Equal(closed, want) {
			t.Errorf("closed %v, want %v", closed, want)
		}
		if n := metricValue(t, table.metrics.full); n != 1 {
			t.Errorf("counted %v refused connections", n)
		}
	})
}

// lingeringEnd is a connection whose client neither reads its answer nor closes.
type lingeringEnd struct {
	clientEnd

	reading chan struct{} // closed when the server lingers
	ended   chan struct{} // closed when the server closes
	once    sync.Once
}

func (l *lingeringEnd) CloseWrite() error { return nil }

func (l *lingeringEnd) SetReadDeadline(time.Time) error { return nil }

func (l *lingeringEnd) Read([]byte) (int, error) {
	close(l.reading)
	<-l.ended
	return 0, net.ErrClosed
}

func (l *lingeringEnd) Close() error {
	l.once.Do(func() {
		_ = l.clientEnd.Close()
		close(l.ended)
	})
	return nil
}

// requireClosed waits until a channel is closed.
func requireClosed(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("the connection is neither lingering nor closed")
	}
}

// A connection that lingers after a refused body gives way to a new one.
func TestLingeringConnectionGivesWay(t *testing.T) {
	t.Parallel()
	table, closed := newTestTable(1, 0), []string{}
	end := &lingeringEnd{
		clientEnd: clientEnd{name: "lingering", address: "192.0.2.1", closed: &closed},
		reading:   make(chan struct{}), ended: make(chan struct{}),
	}
	c := table.add(end)
	c.setPhase(connRunning)
	c.unreadBody.Store(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Close()
	}()
	requireClosed(t, end.reading)
	if table.add(&clientEnd{name: "new", address: "192.0.2.1", closed: &closed}) == nil {
		t.Error("the new connection was refused")
	}
	requireClosed(t, done)
	if want := []string{"lingering"}; !slices.Equal(closed, want) {
		t.Errorf("closed %v, want %v", closed, want)
	}
}

func TestClosedConnectionLeavesTheTable(t *testing.T) {
	t.Parallel()
	table, closed := newTestTable(2, 1), []string{}
	first := table.add(&clientEnd{name: "first", address: "192.0.2.1", closed: &closed})
	table.add(&clientEnd{name: "other", address: "2001:db8::1", closed: &closed})
	if table.add(&clientEnd{name: "second", address: "192.0.2.1", closed: &closed}) != nil {
		t.Error("a second connection of the address was accepted")
	}
	for range 2 {
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	}
	first.setPhase(connIdle) // its last read returns after that
	if table.add(&clientEnd{name: "third", address: "192.0.2.1", closed: &closed}) == nil {
		t.Error("a connection after the first was refused")
	}
	if want := []string{"second", "first", "first"}; !slices.Equal(closed, want) {
		t.Errorf("closed %v, want %v", closed, want)
	}
}
