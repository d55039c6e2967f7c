package wire

import (
	"errors"
	"io"
	"net"
	"net/url"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) *Wire {
	t.Helper()
	w, err := New(echo(t))
	must(t, err)
	t.Cleanup(w.Close)
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// echo is the address of a server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return ln.Addr().String()
}

func dial(t *testing.T, w *Wire) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.Address())
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// echoes reports whether a text comes back within the time.
func echoes(conn net.Conn, text string, within time.Duration) bool {
	if _, err := io.WriteString(conn, text); err != nil {
		return false
	}
	return comes(conn, text, within)
}

func comes(conn net.Conn, text string, within time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(within))
	got := make([]byte, len(text))
	_, err := io.ReadFull(conn, got)
	return err == nil && string(got) == text
}

const (
	soon = 10 * time.Second
	// silence is how long a test listens to a connection that must carry nothing.
	silence = 50 * time.Millisecond
)

// ends reports whether the other side ends the connection.
func ends(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(soon))
	_, err := conn.Read(make([]byte, 1))
	return err != nil && !isTimeout(err)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestFaultsAddUp(t *testing.T) {
	t.Parallel()
	w := start(t)
	for _, step := range []struct {
		name    string
		do      func() error
		carries bool
	}{
		{"new", func() error { return nil }, true},
		{"refused", func() error { return w.Begin(1, Fault{Refuse: true}) }, false},
		{"refused twice", func() error { return w.Begin(2, Fault{Refuse: true}) }, false},
		{"refused once", func() error { return w.End(1) }, false},
		{"mended", func() error { return w.End(2) }, true},
		{"limited", func() error { return w.Begin(3, Fault{Limit: 2}) }, false},
		{"limited and slow", func() error { return w.Begin(4, Fault{Delay: time.Millisecond, Jitter: time.Millisecond}) }, false},
		{"slow", func() error { return w.End(3) }, true},
		{"cured", func() error { return w.End(4) }, true},
	} {
		must(t, step.do())
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.Address())
		if err == nil {
			defer conn.Close()
		}
		if got := err == nil && echoes(conn, "hello", soon); got != step.carries {
			t.Errorf("%s: it carries: %t", step.name, got)
		}
	}
}

// A fault that does not freeze ends the connections that are open, at its beginning and at its end.
func TestOpenConnectionsEnd(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]Fault{"refuse": {Refuse: true}, "swallow": {Swallow: true}, "slow": {Delay: 1}, "cut": {}} {
		w := start(t)
		conn := dial(t, w)
		if !echoes(conn, "hello", soon) {
			t.Fatal("it does not carry")
		}
		must(t, w.Begin(1, f))
		if !ends(conn) {
			t.Errorf("%s: an open connection lives on", name)
		}
		if f.Refuse {
			if _, err := net.Dial("tcp", w.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s: dial: %v", name, err)
			}
			continue
		}
		conn = dial(t, w)
		if got := echoes(conn, "hello", listenFor(!f.Swallow)); got == f.Swallow {
			t.Errorf("%s: a new connection carries: %t", name, got)
		}
		must(t, w.End(1))
		if !ends(conn) {
			t.Errorf("%s: a connection outlives the fault", name)
		}
	}
}

// Frozen connections are taken and never answered; they go on when the fault is over, with all that was sent.
func TestFreeze(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]Fault{"all": {Freeze: true}, "open": {FreezeOpen: true}} {
		w := start(t)
		old := dial(t, w)
		if !echoes(old, "hello", soon) {
			t.Fatal("it does not carry")
		}
		must(t, w.Begin(1, f))
		fresh := dial(t, w)
		if got := echoes(fresh, "fresh", listenFor(f.FreezeOpen)); got != f.FreezeOpen {
			t.Errorf("%s: a new connection carries: %t", name, got)
		}
		if echoes(old, "again", silence) {
			t.Errorf("%s: an open connection carries", name)
		}
		must(t, w.End(1))
		if !comes(old, "again", soon) {
			t.Errorf("%s: an open connection does not go on", name)
		}
		if f.Freeze && !comes(fresh, "fresh", soon) {
			t.Errorf("%s: a new connection does not go on", name)
		}
	}
}

// listenFor is how long a test listens, depending on whether an answer must come.
func listenFor(answer bool) time.Duration {
	if answer {
		return soon
	}
	return silence
}

// A client that gives up on a frozen connection is not heard of until the fault is over, and Close waits for nothing.
func TestCloseWhileFrozen(t *testing.T) {
	t.Parallel()
	w := start(t)
	conn := dial(t, w)
	if !echoes(conn, "hello", soon) {
		t.Fatal("it does not carry")
	}
	must(t, w.Begin(1, Fault{Freeze: true}))
	_ = conn.Close()
	_ = dial(t, w)
	w.Close()
	if n := w.Open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	if err := w.Begin(2, Fault{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed wire takes a fault: %v", err)
	}
	w.Close()
}

func TestRedirect(t *testing.T) {
	t.Parallel()
	w := start(t)
	conn := dial(t, w)
	if !echoes(conn, "hello", soon) {
		t.Fatal("it does not carry")
	}
	w.Redirect(echo(t))
	if !ends(conn) {
		t.Error("an open connection lives on")
	}
	if !echoes(dial(t, w), "hello", soon) {
		t.Error("it does not carry to the new address")
	}
}

// The end of one direction reaches the other side, which may still answer.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	conn := dial(t, start(t))
	_, err := io.WriteString(conn, "last words")
	must(t, err)
	must(t, conn.(*net.TCPConn).CloseWrite())
	_ = conn.SetReadDeadline(time.Now().Add(soon))
	if got, err := io.ReadAll(conn); string(got) != "last words" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestThrough(t *testing.T) {
	t.Parallel()
	w := start(t)
	got, err := url.Parse(w.Through("postgres://svc:secret@127.0.0.1:5432/svc?sslmode=disable"))
	must(t, err)
	if got.Host != w.Address() || got.User.String() != "svc:secret" || got.RawQuery != "sslmode=disable" {
		t.Errorf("got %s", got)
	}
}
