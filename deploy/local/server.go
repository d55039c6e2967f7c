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
	// startTimeout bounds the wait for an answer of a server, recovery after a crash included.
	startTimeout = time.Minute
	// stopTimeout bounds an orderly stop.
	stopTimeout = time.Minute
	// hardTimeout bounds an immediate stop.
	hardTimeout = 5 * time.Second
	// A log above this many bytes is put aside when its server starts.
	maxLogSize = 16 << 20
)

// StopMode is how a server is told to stop.
type StopMode int

const (
	// Fast ends the connections and stops in an orderly way: nothing is lost.
	Fast StopMode = iota
	// Immediate stops at once; the next start recovers as after a crash.
	Immediate
)

// program is what PostgreSQL and Redis differ in.
type program interface {
	name() string
	// command prepares the files of the server and returns the command that runs it on a port.
	command(port int) (*exec.Cmd, error)
	// ping succeeds if the server answers queries. An error that waiting does not heal is a [permanentError].
	ping(ctx context.Context, port int) error
	signals() signals
	// lingers says whether a server ended with this output only because remains of its predecessor are
	// still about to end.
	lingers(output string) bool
}

// signals are the signals that stop a program.
type signals struct {
	fast, immediate syscall.Signal
	orphaned        syscall.Signal // when this process dies
}

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// endedError says that a server ended before it answered.
type endedError struct {
	name   string
	err    error
	output string
}

func (e *endedError) Error() string {
	return fmt.Sprintf("%s ended at its start: %v\n%s", e.name, e.err, e.output)
}

func (e *endedError) Unwrap() error { return e.err }

// Server is one of the private servers: a handle for tests that stop, kill and restart it.
// Its methods may be called from any goroutine.
type Server struct {
	program program
	place   *place
	log     *slog.Logger
	died    chan<- error

	mu       sync.Mutex // one start or stop at a time
	port     int
	reserved *Port    // keeps the port while the server is stopped
	proc     *process // nil if stopped
}

func newServer(p program, pl *place, log *slog.Logger, died chan<- error) *Server {
	return &Server{program: p, place: pl, log: log.With(slog.String("server", p.name())), died: died}
}

// boot starts the server for the first time in this process: on the port of the last time if it is free, else
// on a new one, which it saves. The port stays reserved until release.
func (s *Server) boot(ctx context.Context, saved *int) error {
	const tries = 5 // another program may take a port that cannot be held
	var err error
	for range tries {
		if err = s.reserve(*saved); err != nil {
			return err
		}
		if err = s.Start(ctx); err == nil {
			break
		}
		if portFree(s.port) {
			return err // that was not the reason
		}
	}
	if err != nil || s.port == *saved {
		return err
	}
	*saved = s.port
	return s.place.save()
}

// reserve reserves the given port, or else a new one.
func (s *Server) reserve(saved int) error {
	err := s.release()
	if err != nil {
		return err
	}
	if saved != 0 {
		s.reserved, err = reserveAgain(saved)
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

// release gives the port of a stopped server free. A second call does nothing.
func (s *Server) release() error {
	if s.reserved == nil {
		return nil
	}
	reserved := s.reserved
	s.reserved = nil
	return reserved.Close()
}

// Start starts a stopped server again, on the same port and data, and returns when it answers. It does
// nothing if the server runs.
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
		if !errors.As(err, &ended) || !s.program.lingers(ended.output) {
			return err
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return err
		}
	}
}

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

// launch starts the program and waits for its answer; if there is none, the program is stopped.
func (s *Server) launch(ctx context.Context) error {
	cmd, err := s.program.command(s.port)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.program.name(), err)
	}
	log, size, err := openLog(s.place.path(s.program.name() + ".log"))
	if err != nil {
		return fmt.Errorf("start %s: %w", s.program.name(), err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	began := time.Now()
	proc, err := startProcess(cmd, s.place.account, s.program.signals().orphaned, s.onDeath)
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

// await waits until the server answers.
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

func (s *Server) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.program.ping(ctx, s.port)
}

// onDeath reports an unexpected end.
func (s *Server) onDeath(err error) {
	if err == nil {
		err = errors.New("exit status 0")
	}
	select {
	case s.died <- fmt.Errorf("%s ended unexpectedly: %w; its log is %s", s.program.name(), err,
		s.place.path(s.program.name()+".log")):
	default: // nobody listens
	}
}

// Stop stops the server and waits for its end. If ctx ends first, or a minute passes, the server is stopped hard and
// that is the error. It does nothing if the server does not run.
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
		s.stopHard(sig.immediate)
		return fmt.Errorf("%s did not stop in time and was stopped hard: %w", s.program.name(), ctx.Err())
	}
}

func (s *Server) stopHard(immediate syscall.Signal) {
	s.proc.signal(immediate)
	select {
	case <-s.proc.done:
	case <-time.After(hardTimeout):
		s.proc.signal(syscall.SIGKILL)
		<-s.proc.done
	}
}

// Kill kills the server with SIGKILL, as the system's out-of-memory killer would, and waits for its end. It is not
// reported by Died.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() {
		s.proc.signal(syscall.SIGKILL)
		<-s.proc.done
		s.log.Info("server killed")
	}
}

// KillAll kills the server and its processes with SIGKILL at once, as if the machine had failed, and waits for their
// end. Where the system does not tell the processes, it is Kill.
func (s *Server) KillAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return
	}
	pid := s.proc.cmd.Process.Pid
	s.proc.signal(syscall.SIGSTOP) // so that none begins meanwhile
	all := children(pid)
	s.proc.signal(syscall.SIGKILL)
	for _, child := range all {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	<-s.proc.done
	for _, child := range all {
		for !gone(child) {
			time.Sleep(time.Millisecond)
		}
	}
	s.log.Info("server and its processes killed")
}

// Port is the server's port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// PID is the process id of the server, 0 if it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return 0
	}
	return s.proc.cmd.Process.Pid
}

// openLog opens a server's log for appending and returns its size so far.
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

// withOutput completes an endedError with what the server has logged since its start.
func withOutput(err error, log *os.File, from int64) error {
	var ended *endedError
	if errors.As(err, &ended) {
		out := new(tail)
		_, _ = io.Copy(out, io.NewSectionReader(log, from, 1<<20)) // the output is an extra
		ended.output = strings.TrimSpace(out.String())
	}
	return err
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
