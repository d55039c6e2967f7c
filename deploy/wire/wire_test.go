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

// echo starts a server that returns all data it receives, and returns its address.
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

// echoes sends text and reports whether it returns within the time.
func echoes(conn net.Conn, text string, within time.Duration) bool {
	if _, err := io.WriteString(conn, text); err != nil {
		return false
	}
	return receives(conn, text, within)
}

// receives reports whether text arrives within the time.
func receives(conn net.Conn, text string, within time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(within))
	got := make([]byte, len(text))
	_, err := io.ReadFull(conn, got)
	return err == nil && string(got) == text
}

const (
	soon = 10 * time.Second
	// silence is how long a test reads from a connection that must carry no data.
	silence = 50 * time.Millisecond
)

// ends reports whether the other side closes the connection.
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
		{"accepted again", func() error { return w.End(2) }, true},
		{"limited", func() error { return w.Begin(3, Fault{Limit: 2}) }, false},
		{"limited and slow", func() error {
			return w.Begin(4, Fault{Delay: time.Millisecond, Jitter: time.Millisecond})
		}, false},
		{"slow", func() error { return w.End(3) }, true},
		{"without faults", func() error { return w.End(4) }, true},
	} {
		must(t, step.do())
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.Address())
		if err == nil {
			defer conn.Close()
		}
		if got := err == nil && echoes(conn, "hello", soon); got != step.carries {
			t.Errorf("%s: the wire carries data: %t, want %t", step.name, got, step.carries)
		}
	}
}

// A fault that does not freeze connections ends them when it begins and when it ends.
func TestOpenConnectionsEnd(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]Fault{
		"refuse": {Refuse: true}, "swallow": {Swallow: true}, "slow": {Delay: 1}, "zero": {},
	} {
		w := start(t)
		conn := dial(t, w)
		if !echoes(conn, "hello", soon) {
			t.Fatal("the wire carries no data")
		}
		must(t, w.Begin(1, f))
		if !ends(conn) {
			t.Errorf("%s: an open connection stays open", name)
		}
		if f.Refuse {
			if _, err := net.Dial("tcp", w.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s: dial: %v", name, err)
			}
			continue
		}
		conn = dial(t, w)
		if got := echoes(conn, "hello", readTime(!f.Swallow)); got == f.Swallow {
			t.Errorf("%s: a new connection carries data: %t", name, got)
		}
		must(t, w.End(1))
		if !ends(conn) {
			t.Errorf("%s: a connection survives the end of the fault", name)
		}
	}
}

// Frozen connections carry no data. After the fault they continue with all data that was sent.
func TestFreeze(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]Fault{"all": {Freeze: true}, "open": {FreezeOpen: true}} {
		w := start(t)
		old := dial(t, w)
		if !echoes(old, "hello", soon) {
			t.Fatal("the wire carries no data")
		}
		must(t, w.Begin(1, f))
		fresh := dial(t, w)
		if got := echoes(fresh, "fresh", readTime(f.FreezeOpen)); got != f.FreezeOpen {
			t.Errorf("%s: a new connection carries data: %t", name, got)
		}
		if echoes(old, "again", silence) {
			t.Errorf("%s: an open connection carries data", name)
		}
		must(t, w.End(1))
		if !receives(old, "again", soon) {
			t.Errorf("%s: an open connection does not continue", name)
		}
		if f.Freeze && !receives(fresh, "fresh", soon) {
			t.Errorf("%s: a new connection does not continue", name)
		}
	}
}

// readTime returns how long a test reads, depending on whether data must arrive.
func readTime(answer bool) time.Duration {
	if answer {
		return soon
	}
	return silence
}

// Close does not wait for frozen connections, including those that the client has closed.
func TestCloseWhileFrozen(t *testing.T) {
	t.Parallel()
	w := start(t)
	conn := dial(t, w)
	if !echoes(conn, "hello", soon) {
		t.Fatal("the wire carries no data")
	}
	must(t, w.Begin(1, Fault{Freeze: true}))
	_ = conn.Close()
	_ = dial(t, w)
	w.Close()
	if n := w.open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	if err := w.Begin(2, Fault{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed wire accepts a fault: %v", err)
	}
	w.Close()
}

func TestRedirect(t *testing.T) {
	t.Parallel()
	w := start(t)
	conn := dial(t, w)
	if !echoes(conn, "hello", soon) {
		t.Fatal("the wire carries no data")
	}
	w.Redirect(echo(t))
	if !ends(conn) {
		t.Error("an open connection stays open")
	}
	if !echoes(dial(t, w), "hello", soon) {
		t.Error("the wire carries no data to the new address")
	}
}

// The end of one direction reaches the other side, which can still answer.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	conn := dial(t, start(t))
	_, err := io.WriteString(conn, "last bytes")
	must(t, err)
	must(t, conn.(*net.TCPConn).CloseWrite())
	_ = conn.SetReadDeadline(time.Now().Add(soon))
	if got, err := io.ReadAll(conn); string(got) != "last bytes" || err != nil {
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
