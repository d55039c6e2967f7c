package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startTimeout bounds the wait for a starting server, including crash recovery.
	startTimeout = time.Minute
	// stopTimeout bounds the wait for a server's end after the first signal.
	stopTimeout = time.Minute
	// immediateTimeout bounds the wait after stopTimeout and the signal for an immediate stop.
	// SIGKILL follows.
	immediateTimeout = 5 * time.Second
	// maxLogSize is the size, in bytes, above which a log is renamed to NAME.log.old when its
	// server starts.
	maxLogSize = 16 << 20
)

// StopMode is a way to stop a server.
type StopMode int

const (
	// Fast closes the connections and shuts down in an orderly way. No data is lost, except that of
	// an ephemeral Redis.
	Fast StopMode = iota
	// Immediate stops a server without a checkpoint. The next start recovers as after a crash.
	Immediate
)

// program is the part of a server that differs between PostgreSQL, Redis and PgBouncer.
type program interface {
	// name returns the name of the server, which begins the name of its log file.
	name() string
	// command prepares the server's files and returns the command that runs it on a port.
	command(port int) (*exec.Cmd, error)
	// ping returns nil if the server answers queries, and a [permanentError] if waiting cannot
	// help.
	ping(ctx context.Context, port int) error
	signals() signals
	// retryable reports whether a failed start with this output can succeed when it is repeated.
	// That is so while processes of the previous run are still ending.
	retryable(output string) bool
}

// signals are the signals that stop a program.
type signals struct {
	fast, immediate syscall.Signal // for the stop modes Fast and Immediate
	orphaned        syscall.Signal // sent by the kernel when this process dies
}

// permanentError is an error that waiting cannot resolve.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// endedError reports a server that ended before it answered a ping.
type endedError struct {
	name   string // of the server
	err    error  // its exit error
	output string // the end of its output since the start
}

func (e *endedError) Error() string {
	return fmt.Sprintf("%s ended while starting: %v\n%s", e.name, e.err, e.output)
}

func (e *endedError) Unwrap() error { return e.err }

// Server is one of the private servers (PostgreSQL, Redis or PgBouncer): a handle for tests that
// stop, kill and restart it. Its methods are safe for concurrent use.
type Server struct {
	program program
	dir     *serversDir
	log     *slog.Logger
	died    chan<- error // receives unexpected ends

	mu       sync.Mutex // serialises starts and stops
	port     int
	reserved *Port    // holds the port while the server is stopped
	proc     *process // nil if stopped
}

func newServer(p program, dir *serversDir, log *slog.Logger, died chan<- error) *Server {
	return &Server{program: p, dir: dir, log: log.With(slog.String("server", p.name())), died: died}
}

// boot starts the server for the first time in this process. It uses the port *saved if that is
// free. Otherwise it chooses a new port, and saves it in *saved and in the servers' folder. The
// port stays reserved until release.
func (s *Server) boot(ctx context.Context, saved *int) error {
	const tries = 5 // another program may occupy a port that cannot be held
	var err error
	for range tries {
		if err = s.reserve(*saved); err != nil {
			return err
		}
		if err = s.Start(ctx); err == nil {
			break
		}
		if portFree(s.port) {
			return err // the port was not the cause
		}
	}
	if err != nil || s.port == *saved {
		return err
	}
	*saved = s.port
	return s.dir.save()
}

// reserve reserves the port saved, or a new port if saved is 0 or in use. It releases a port that
// the server has reserved before.
func (s *Server) reserve(saved int) error {
	err := s.release()
	if err != nil {
		return err
	}
	if saved != 0 {
		s.reserved, err = reserveSaved(saved)
	}
	if saved == 0 || err != nil {
		s.reserved, err = ReservePort()
	}
	if err != nil {
		return err
	}
	s.port = s.reserved.Number()
	return nil
}

// release releases the reserved port. A second call does nothing.
func (s *Server) release() error {
	if s.reserved == nil {
		return nil
	}
	reserved := s.reserved
	s.reserved = nil
	return reserved.Close()
}

// Start starts a stopped server with the same port and data, and returns once it answers queries,
// or with an error after a minute. It does nothing if the server runs.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := s.launch(ctx)
		var ended *endedError
		if !errors.As(err, &ended) || !s.program.retryable(ended.output) {
			return err
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return err
		}
	}
}

// running reports whether the server's process has not ended. The caller holds mu.
func (s *Server) running() bool {
	if s.proc == nil {
		return false
	}
	select {
	case <-s.proc.done:
		return false
	default:
		return true
	}
}

// launch starts the program and waits until it answers. On an error, it kills the program.
func (s *Server) launch(ctx context.Context) error {
	cmd, err := s.program.command(s.port)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.program.name(), err)
	}
	log, size, err := openLog(s.dir.file(s.program.name() + ".log"))
	if err != nil {
		return fmt.Errorf("start %s: %w", s.program.name(), err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	began := time.Now()
	proc, err := startProcess(cmd, s.dir.account, s.program.signals().orphaned, s.onDeath)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.program.name(), err)
	}
	err = s.await(ctx, proc)
	if err == nil && !proc.watch() {
		err = &endedError{name: s.program.name(), err: proc.err}
	}
	if err != nil {
		proc.signal(syscall.SIGKILL)
		<-proc.done
		return withOutput(err, log, size)
	}
	s.proc = proc
	s.log.Info("server started", slog.Int("port", s.port), slog.Int("pid", cmd.Process.Pid),
		slog.Duration("took", time.Since(began)))
	return nil
}

// await waits until the server answers. It returns an error if the server ends first, if ctx ends,
// or if waiting cannot help.
func (s *Server) await(ctx context.Context, proc *process) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := s.ping(ctx)
		var permanent permanentError
		if err == nil || errors.As(err, &permanent) {
			return err
		}
		select {
		case <-proc.done:
			return &endedError{name: s.program.name(), err: proc.err}
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w: %w", s.program.name(), ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}

// ping asks the program once, for 5 s at most.
func (s *Server) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.program.ping(ctx, s.port)
}

// onDeath reports an unexpected end with the exit error err.
func (s *Server) onDeath(err error) {
	if err == nil {
		err = errors.New("exit status 0")
	}
	select {
	case s.died <- fmt.Errorf("%s ended unexpectedly: %w; its log is %s", s.program.name(), err,
		s.dir.file(s.program.name()+".log")):
	default: // an earlier error has not been received
	}
}

// Stop stops the server and waits for its end. If the server still runs after a minute or at the
// end of ctx, Stop kills it and returns an error. It does nothing if the server does not run.
func (s *Server) Stop(ctx context.Context, mode StopMode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return nil
	}
	defer s.log.Info("server stopped")
	sig := s.program.signals()
	if mode == Immediate {
		s.proc.signal(sig.immediate)
	} else {
		s.proc.signal(sig.fast)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	select {
	case <-s.proc.done:
		return nil
	case <-ctx.Done():
		s.stopImmediately(sig.immediate)
		return fmt.Errorf("%s did not stop in time and was killed: %w", s.program.name(), ctx.Err())
	}
}

// stopImmediately sends the signal for an immediate stop and, after immediateTimeout, SIGKILL.
func (s *Server) stopImmediately(immediate syscall.Signal) {
	s.proc.signal(immediate)
	select {
	case <-s.proc.done:
	case <-time.After(immediateTimeout):
		s.proc.signal(syscall.SIGKILL)
		<-s.proc.done
	}
}

// Kill kills the server's main process with SIGKILL, like the out-of-memory killer, and waits for
// its end. [Servers.Died] does not report that end.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() {
		s.proc.signal(syscall.SIGKILL)
		<-s.proc.done
		s.log.Info("server killed")
	}
}

// KillAll kills the server and its child processes with SIGKILL, as if the machine had failed, and
// waits for their end. On systems that do not list child processes, it is the same as Kill.
func (s *Server) KillAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return
	}
	pid := s.proc.cmd.Process.Pid
	s.proc.signal(syscall.SIGSTOP) // the server starts no more children
	all := children(pid)
	s.proc.signal(syscall.SIGKILL)
	for _, child := range all {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	<-s.proc.done
	for _, child := range all {
		for !exited(child) {
			time.Sleep(time.Millisecond)
		}
	}
	s.log.Info("server and its processes killed")
}

// Port returns the server's port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// PID returns the process id of the server, or 0 if it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return 0
	}
	return s.proc.cmd.Process.Pid
}

// openLog opens a server's log for appending and returns its size in bytes. It renames a log above
// maxLogSize first.
func openLog(path string) (*os.File, int64, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogSize {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, 0, err
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err := errors.Join(err, inheritOwner(path)); err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// withOutput adds the end of the server's output to an endedError, and returns other errors
// unchanged. from is the size of the log when the server was started.
func withOutput(err error, log *os.File, from int64) error {
	var ended *endedError
	if errors.As(err, &ended) {
		out := new(tail)
		_, _ = io.Copy(out, io.NewSectionReader(log, from, 1<<20)) // the error is useful without output
		ended.output = strings.TrimSpace(out.String())
	}
	return err
}

// pause waits for d. It returns an error if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
