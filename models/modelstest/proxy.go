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
	open   map[*proxied]bool
}

// proxied is one connection through the proxy.
type proxied struct {
	near, far net.Conn
	freeze    chan struct{} // closed: nothing passes any more
	end       chan struct{} // closed with the proxy
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

// Freeze freezes all connections, and new ones until Thaw.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = true
	for c := range p.open {
		c.stop()
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
		far, err := net.Dial("tcp", p.upstream) //nolint:noctx // to a server of this machine
		if err != nil {
			_ = near.Close()
			continue
		}
		c := &proxied{near: near, far: far, freeze: make(chan struct{}), end: make(chan struct{})}
		p.mu.Lock()
		p.open[c] = true
		if p.frozen {
			c.stop()
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
		select {
		case <-c.freeze:
			<-c.end
			return
		default:
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

// stop freezes a connection. The proxy's mutex is held.
func (c *proxied) stop() {
	select {
	case <-c.freeze:
	default:
		close(c.freeze)
	}
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.open {
		close(c.end)
		_ = c.near.Close()
		_ = c.far.Close()
	}
	p.mu.Unlock()
	p.copying.Wait()
}
