package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"partnerbilling/deploy/local"
)

// member is a process of the service in a chaos or failover run. Like an orchestrator, its method
// run restarts the process whenever it ends.
type member struct {
	name   string
	env    []string
	svc    string   // path of the binary
	args   []string // its command
	output *transcript

	mu       sync.Mutex
	process  *os.Process   // nil while it is down
	stayDown time.Duration // minimum time until the next restart
	done     chan struct{} // closed when it is not restarted any more
	stopping bool
	lastExit int // exit code of the last process
}

// minRestartDelay is the minimum time between the end of a process and its restart.
const minRestartDelay = 200 * time.Millisecond

// run starts the process, and restarts it whenever it ends, until stop is called or ctx ends. The
// end of ctx kills the process.
func (m *member) run(ctx context.Context) error {
	defer close(m.done)
	for {
		cmd := exec.CommandContext(ctx, m.svc, m.args...)
		cmd.Env = local.Environ(m.env...)
		cmd.Stdout, cmd.Stderr = m.output, m.output
		cmd.WaitDelay = time.Second
		again, err := m.start(cmd)
		if !again || err != nil {
			return err
		}
		_ = cmd.Wait() // an error is expected: most processes end because a fault kills them
		pause, again := m.exited(cmd)
		if !again || !sleep(ctx, pause) {
			return nil
		}
	}
}

// start starts the process, unless the member is stopping. It reports whether it started one.
func (m *member) start(cmd *exec.Cmd) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopping {
		return false, nil
	}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start %s: %w", m.name, err)
	}
	m.process = cmd.Process
	return true, nil
}

// exited records the end of the process. It returns whether to start it again, and the delay before
// that.
func (m *member) exited(cmd *exec.Cmd) (pause time.Duration, again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process, m.lastExit = nil, cmd.ProcessState.ExitCode()
	pause, m.stayDown = max(m.stayDown, minRestartDelay), 0
	return pause, !m.stopping
}

// current waits until the process runs, and returns it; nil if ctx ends first.
func (m *member) current(ctx context.Context) *os.Process {
	for {
		m.mu.Lock()
		p := m.process
		m.mu.Unlock()
		if p != nil || !sleep(ctx, 10*time.Millisecond) {
			return p
		}
	}
}

// kill kills the process. It is restarted after the time down, or after minRestartDelay if that is
// longer. A process that has just ended counts as killed.
func (m *member) kill(ctx context.Context, down time.Duration) error {
	p := m.current(ctx)
	if p == nil {
		return ctx.Err()
	}
	m.mu.Lock()
	m.stayDown = down
	m.mu.Unlock()
	return ignoreEnded(p.Kill())
}

// ignoreEnded returns nil if err says that the process has ended, and err otherwise.
func ignoreEnded(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// pause stops the process with SIGSTOP, and continues it after d. It does nothing to a process that
// has just ended.
func (m *member) pause(ctx context.Context, d time.Duration) error {
	p := m.current(ctx)
	if p == nil {
		return ctx.Err()
	}
	if err := ignoreEnded(p.Signal(syscall.SIGSTOP)); err != nil {
		return err
	}
	sleep(ctx, d)
	_ = p.Signal(syscall.SIGCONT)
	return nil
}

// stop asks the process to end, and waits for its end. It returns an error if the process does not
// end in time, or if it ends with an exit code other than 0.
func (m *member) stop(within time.Duration) error {
	m.mu.Lock()
	m.stopping = true
	p := m.process
	m.mu.Unlock()
	if p != nil {
		_ = p.Signal(syscall.SIGTERM)
	}
	select {
	case <-m.done:
	case <-time.After(within):
		return fmt.Errorf("%s does not end %s after SIGTERM", m.name, within)
	}
	if p != nil && m.lastExit != 0 {
		return fmt.Errorf("%s ended with exit code %d after SIGTERM", m.name, m.lastExit)
	}
	return nil
}

// sleep waits for d. It returns false at once if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
