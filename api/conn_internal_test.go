package api

import (
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// flood is a listener on which a connection always waits.
type flood struct{ net.Listener }

func (flood) Accept() (net.Conn, error) {
	return &clientEnd{address: "192.0.2.1", closed: new([]string)}, nil
}

// A flood of connections is accepted at the rate of the listener, after a first burst.
func TestListenerPacesAFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const measured = 2 * time.Second
		want := acceptBurst + acceptRate*runtime.GOMAXPROCS(0)*int(measured/time.Second)
		l := listener{flood{}, newTestTable(minConnections, 0), newAcceptPace()}
		began, accepted := time.Now(), 0
		for ; time.Since(began) < measured && accepted <= want+1; accepted++ {
			if _, err := l.Accept(); err != nil {
				t.Fatal(err)
			}
		}
		if accepted < want-1 || accepted > want+1 {
			t.Errorf("accepted %d connections in %s, want about %d", accepted, measured, want)
		}
	})
}

// A body that was asked for with 100 Continue arrives in the phase of its request, and with its
// head.
func TestInterimAnswerEndsNoRequest(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	c := newTestTable(minConnections, 0).add(server)
	const head = "POST /checkout/x/payment-intent HTTP/1.1\r\nExpect: 100-continue\r\n\r\n"
	exchange := func(sent, answer string) {
		t.Helper()
		buffer := make([]byte, 2*maxHead)
		go func() { _, _ = client.Write([]byte(sent)) }()
		if n, err := c.Read(buffer); err != nil || string(buffer[:n]) != sent {
			t.Fatalf("read %q, %v", buffer[:n], err)
		}
		go func() { _, _ = client.Read(make([]byte, len(answer))) }()
		if _, err := c.Write([]byte(answer)); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(phase connPhase, target string) {
		t.Helper()
		_ = c.SetReadDeadline(past)
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Fatal("the client has sent more")
		}
		_ = c.SetReadDeadline(time.Time{})
		if c.entry.phase != phase || c.target() != target {
			t.Errorf("phase %d, target %q; want %d, %q", c.entry.phase, c.target(), phase, target)
		}
	}
	exchange(head, "HTTP/1.1 100 Continue\r\n\r\n")
	expect(connArriving, "/checkout/x/payment-intent")
	exchange("{}", "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
	expect(connIdle, "")
}
