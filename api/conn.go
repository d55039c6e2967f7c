package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// listener accepts connections of type conn. Its connTable bounds their number, and pace the rate
// at which they come.
type listener struct {
	net.Listener
	connections *connTable
	pace        *rate.Limiter
}

const (
	// acceptRate is the maximum number of connections that are accepted in a second, for each CPU.
	// Without it, a client that opens thousands of connections at once would slow down all requests
	// meanwhile. Connections beyond it wait in the system's queue. Those that the connTable refuses
	// do not count.
	acceptRate = 2000
	// acceptBurst is the number of connections that are accepted at once after a pause.
	acceptBurst = 32
)

// newAcceptPace returns the limiter of a listener.
func newAcceptPace() *rate.Limiter {
	return rate.NewLimiter(rate.Limit(acceptRate*runtime.GOMAXPROCS(0)), acceptBurst)
}

// Accept returns the next connection that the connTable does not refuse.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		added := l.connections.add(c)
		if added == nil {
			continue
		}
		if !l.pace.Allow() {
			l.connections.metrics.paced.Inc()
			_ = l.pace.Wait(context.Background()) // less than a millisecond
		}
		return added, nil
	}
}

// Close closes the listener. It may be called twice: Shutdown can begin before fasthttp knows the
// listener.
func (l listener) Close() error {
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// conn is a client's connection. It can detect that the client disconnects while a request runs
// (watch), and loses no answer when it closes (Close). Its connTable records what the connection is
// doing.
type conn struct {
	net.Conn
	entry      connEntry
	unreadBody atomic.Bool // a request body is left unread, so Close lingers

	answered atomic.Bool // the next bytes read begin a request
	head     []byte      // the first maxHead bytes of the request; used only by the reading goroutine

	mu       sync.Mutex
	peeked   []byte    // read ahead by watch; Read returns it first
	err      error     // of the read-ahead; Read returns it after peeked
	deadline time.Time // by which the whole request must have arrived
	aborted  bool      // the body that is being read is aborted
}

// maxHead is how many bytes of a request are kept: the method, and enough of the path to tell the
// area of its error codes, such as "batches".
const maxHead = 128

// Read returns the bytes that watch read ahead, then the client's bytes.
func (c *conn) Read(p []byte) (int, error) {
	begins := c.answered.Swap(false)
	if begins {
		c.setPhase(connIdle)
		c.head = c.head[:0]
	}
	n, err := c.read(p)
	if n > 0 {
		c.beginArriving()
	}
	c.head = append(c.head, p[:min(n, maxHead-len(c.head))]...)
	return n, err
}

// Write sends a part of an answer. An interim answer (1xx) alone does not end the request: its body
// is still to come. Behind the answer of a pipelined request it is not recognised.
func (c *conn) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(p, interimAnswer) {
		c.answered.Store(true)
	}
	return c.Conn.Write(p)
}

// interimAnswer is the beginning of each interim answer, which fasthttp writes at once.
var interimAnswer = []byte("HTTP/1.1 1")

// target returns the beginning of the current request's path, even if the request is malformed.
// With pipelined requests it may be the path of an earlier one.
func (c *conn) target() string {
	line, _, _ := bytes.Cut(c.head, []byte("\r\n"))
	_, target, _ := bytes.Cut(line, []byte(" "))
	target, _, _ = bytes.Cut(target, []byte(" "))
	target, _, _ = bytes.Cut(target, []byte("?"))
	return string(target)
}

// read returns the bytes that were read ahead, then the error of that read, then new bytes.
func (c *conn) read(p []byte) (int, error) {
	c.mu.Lock()
	if len(c.peeked) > 0 {
		n := copy(p, c.peeked)
		c.peeked = c.peeked[n:]
		c.mu.Unlock()
		return n, nil
	}
	err := c.err
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// SetReadDeadline sets the time by which the whole request must have arrived.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline, c.aborted = t, false
	return c.Conn.SetReadDeadline(t)
}

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// beginPart starts the time-out of the next part of a body: bodyPartTime, but no longer than until
// the request's deadline. It does nothing on nil.
func (c *conn) beginPart() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := time.Now().Add(bodyPartTime) //nolint:forbidigo // measures only how long a client takes
	if !c.deadline.IsZero() && c.deadline.Before(t) {
		t = c.deadline
	}
	if !c.aborted {
		_ = c.Conn.SetReadDeadline(t) // a closed connection fails the read
	}
}

// abortRead makes the present read of a body fail, and later reads of it. It does nothing on nil.
func (c *conn) abortRead() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aborted = true
	_ = c.Conn.SetReadDeadline(past)
}

// beginBody records that a body is arriving: the connTable may now close the connection. It does
// nothing on nil.
func (c *conn) beginBody() {
	if c != nil {
		c.setPhase(connArriving)
	}
}

// endBody records that the request runs again, and restores its deadline. It does nothing on nil.
func (c *conn) endBody() {
	if c != nil {
		c.setPhase(connRunning)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.aborted = false
		_ = c.Conn.SetReadDeadline(c.deadline)
	}
}

// Close reads and drops a refused body for at most lingerTime, and at most lingerBytes bytes.
const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 32 << 20
)

// Close closes the connection. If the socket closed with unread input, it would be reset, and the
// client might lose the answer. Close therefore gives a client that is still sending a refused body
// a moment to read the answer, unless the connTable needs the connection.
func (c *conn) Close() error {
	defer c.leaveTable()
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.unreadBody.Load() && half.CloseWrite() == nil {
		c.setPhase(connIdle)
		_ = c.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	return c.Conn.Close()
}

// watch returns a context that also ends when the client disconnects. Once the client has sent a
// further byte, no disconnect is noticed. The connection must not be read until stop is called.
// stop must be called.
func (c *conn) watch(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	_ = c.Conn.SetReadDeadline(time.Time{})
	go func() {
		defer close(done)
		var b [1]byte
		n, err := c.Conn.Read(b[:])
		c.mu.Lock()
		defer c.mu.Unlock()
		c.peeked = append(c.peeked, b[:n]...)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			c.err = err
			cancel()
		}
	}()
	return ctx, func() {
		_ = c.Conn.SetReadDeadline(past) // ends the read; fasthttp sets the next deadline
		<-done
		_ = c.Conn.SetReadDeadline(time.Time{})
		cancel()
	}
}

// UntilDisconnect returns a copy of ctx for a handler that waits. The copy also ends when the
// client disconnects or the server begins to shut down. After that the handler answers with the
// present state, under ctx. The handler must call stop before it returns. While a request's body is
// unread, or once the client has begun to send another request, no disconnect is noticed.
func (r *Request) UntilDisconnect(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	stopDraining := context.AfterFunc(r.draining, cancel)
	stopWatching := func() {}
	if c, ok := r.fast.Conn().(*conn); ok && !r.hasUnreadBody() {
		ctx, stopWatching = c.watch(ctx)
	}
	return ctx, func() {
		stopWatching()
		stopDraining()
		cancel()
	}
}
