package modelstest

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// Proxy is a TCP proxy whose connections can be frozen: they stay open and acknowledge what they are sent, and nothing
// ever comes back. Its listener stays open until the test ends, so that its port is never another's.
type Proxy struct {
	// Addr is the host:port to connect to.
	Addr string

	t        testing.TB
	upstream string
	listener net.Listener
	copying  sync.WaitGroup

	mu     sync.Mutex
	frozen bool
	closed bool
	open   map[*proxied]bool
}

// proxied is one connection through the proxy.
type proxied struct {
	near, far net.Conn
	freeze    chan struct{} // closed: nothing passes any more
	end       chan struct{} // closed: both sides are
}

// NewProxy starts a proxy to upstream, a host:port. It ends with the test.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("modelstest: proxy: %v", err)
	}
	p := &Proxy{Addr: listener.Addr().String(), t: t, upstream: upstream, listener: listener, open: map[*proxied]bool{}}
	p.copying.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// ProxyURL starts a proxy to the server of a URL and returns it with the URL that leads through it.
func ProxyURL(t testing.TB, address string) (p *Proxy, through string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("modelstest: proxy: %v", err)
	}
	p = NewProxy(t, u.Host)
	u.Host = p.Addr
	return p, u.String()
}

// Freeze freezes all connections, and new ones until Thaw. It closes those that an earlier Freeze has frozen, so that a
// server's sessions are not used up by tests that freeze often.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = true
	for c := range p.open {
		if c.isFrozen() {
			c.close()
			delete(p.open, c)
		} else {
			close(c.freeze)
		}
	}
}

// Thaw lets new connections through. Those that are frozen stay so.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = false
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return // closed with the test
		}
		far, err := net.Dial("tcp", p.upstream)
		if err != nil {
			_ = near.Close()
			continue
		}
		c := &proxied{near: near, far: far, freeze: make(chan struct{}), end: make(chan struct{})}
		p.mu.Lock()
		p.open[c] = true
		if p.frozen {
			close(c.freeze)
		}
		if p.closed {
			c.close()
		}
		p.mu.Unlock()
		p.copying.Go(func() { p.carry(c) })
	}
}

// carry copies both ways until one side ends, or, frozen, until the proxy does.
func (p *Proxy) carry(c *proxied) {
	var both sync.WaitGroup
	both.Go(func() { c.copy(c.far, c.near) })
	both.Go(func() { c.copy(c.near, c.far) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

func (c *proxied) copy(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if c.isFrozen() {
			<-c.end
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *proxied) isFrozen() bool {
	select {
	case <-c.freeze:
		return true
	default:
		return false
	}
}

// close closes both sides; it is called once, under the proxy's mutex.
func (c *proxied) close() {
	close(c.end)
	_ = c.near.Close()
	_ = c.far.Close()
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		c.close()
	}
	p.mu.Unlock()
	p.copying.Wait()
}
