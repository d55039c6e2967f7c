package api

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"time"
)

// streamWriteTimeout bounds one write to the client.
const streamWriteTimeout = 30 * time.Second

// isHead reports whether the method is HEAD.
func (r *Request) isHead() bool { return r.fast.IsHead() }

// stream answers with the output of write, which runs after the handler has returned. The context
// of write ends when the client disconnects, or when the context until ends. flush sends the
// buffered output, and fails once the client has disconnected.
func (r *Request) stream(
	ctx, until context.Context, contentType string,
	write func(ctx context.Context, out *bufio.Writer, flush func() error),
) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(until, cancel)
	connection := r.fast.Conn()
	watch := func(ctx context.Context) (context.Context, func()) { return ctx, func() {} }
	if c, ok := connection.(*conn); ok && !r.hasUnreadBody() {
		watch = c.watch
	}
	response := &r.fast.Response
	response.SetStatusCode(http.StatusOK)
	response.Header.SetContentType(contentType)
	run := func(out *bufio.Writer) {
		defer stop()
		defer cancel()
		ctx, stopWatching := watch(ctx)
		defer stopWatching()
		write(ctx, out, func() error {
			// Without a new deadline for each write, the server's time-out would bound the stream.
			if err := connection.SetWriteDeadline(time.Now().Add(streamWriteTimeout)); err != nil {
				return err
			}
			return out.Flush()
		})
	}
	if r.fast.Request.Header.IsHTTP11() {
		response.SetBodyStreamWriter(run)
		return
	}
	r.streamUntilClose(run)
}

// streamUntilClose streams to an HTTP/1.0 client, which does not know chunks. The end of the
// connection marks the end of the body.
func (r *Request) streamUntilClose(run func(*bufio.Writer)) {
	const untilClose = -2
	r.fast.Response.Header.SetContentLength(untilClose)
	head := bytes.Clone(r.fast.Response.Header.Header())
	r.fast.HijackSetNoResponse(true)
	r.fast.Hijack(func(c net.Conn) {
		out := bufio.NewWriter(c)
		_, _ = out.Write(head) // run's first flush returns the error
		run(out)
		_ = out.Flush()
	})
}
