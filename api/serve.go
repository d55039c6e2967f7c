package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Serve answers requests on the listener until Shutdown, and then returns nil.
func (s *Server) Serve(ln net.Listener) error {
	stop := context.AfterFunc(s.draining, func() { _ = ln.Close() })
	defer stop()
	if err := s.http.Serve(listener{ln, s.connections, newAcceptPace()}); err != nil && s.draining.Err() == nil {
		return fmt.Errorf("api: serve: %w", err)
	}
	return nil
}

// Run serves until ctx ends. Open requests then have Config.ShutdownTimeout to finish. The first
// part of that time is Config.DrainTime (see drain).
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.shutdownTimeout)
	defer cancel()
	s.drain(end)
	err := s.Shutdown(end)
	return errors.Join(err, <-served)
}

// drain accepts no new connection, but serves the open ones for Config.DrainTime or until all are
// closed. Each answer tells the client to close its connection. Shutdown closes the other
// connections, on which no request came in that time. A request that arrives just then is lost, and
// clients do not repeat a POST by themselves.
func (s *Server) drain(ctx context.Context) {
	s.beginDraining()
	ctx, cancel := context.WithTimeout(ctx, s.drainTime)
	defer cancel()
	s.connections.open.wait(ctx)
}

// Listen runs the server on a TCP address, such as ":8080", until ctx ends.
func (s *Server) Listen(ctx context.Context, address string) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("api: listen: %w", err)
	}
	return s.Run(ctx, ln)
}

// cancelGrace is the time that cancelled requests have to return.
const cancelGrace = 2 * time.Second

// Shutdown accepts no more requests, ends held requests and event streams, and lets the other
// requests finish. If ctx ends first, Shutdown cancels the requests, waits up to cancelGrace for
// them, and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.beginDraining()
	defer s.endRequests()
	err := s.http.ShutdownWithContext(ctx)
	if ctx.Err() == nil {
		return err
	}
	s.endRequests()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelGrace)
	defer cancel()
	s.active.wait(last)
	return ctx.Err()
}

// active counts the requests in flight, or the open connections. It is safe for concurrent use.
type active struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n reaches 0; nil unless wait has run since n was 0
}

func (a *active) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

func (a *active) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
}

func (a *active) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n--; a.n == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// wait returns when the count is 0 or when ctx ends.
func (a *active) wait(ctx context.Context) {
	a.mu.Lock()
	if a.n == 0 {
		a.mu.Unlock()
		return
	}
	if a.idle == nil {
		a.idle = make(chan struct{})
	}
	idle := a.idle
	a.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// serverLogger logs fasthttp's messages about connections at level debug.
type serverLogger struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (l serverLogger) Printf(format string, args ...any) {
	l.log.Debug("connection", "message", fmt.Sprintf(format, args...))
}
