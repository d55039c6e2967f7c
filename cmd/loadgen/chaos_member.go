package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"partnerbilling/deploy/local"
)

// member is a process of the fleet. It is restarted whenever it ends, as by an orchestrator, until
// the fleet ends.
type member struct {
	name   string
	env    []string
	svc    string   // path of the binary
	args   []string // its command
	output *transcript

	mu       sync.Mutex
	process  *os.Process // nil while it is down
	stayDown time.Duration
	done     chan struct{} // closed when it is not restarted any more
	stopping bool
	lastExit int
}

// minRestartDelay is the minimum time between the end of a process and its restart.
const minRestartDelay = 200 * time.Millisecond

// run keeps the process up until ctx ends, which kills it, or until stop.
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
		_ = cmd.Wait() // it was most likely killed
		pause, again := m.exited(cmd)
		if !again || !sleep(ctx, pause) {
			return nil
		}
	}
}

// start starts the process, unless the member is stopping. It reports whether it did.
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

// exited records the end of the process. It returns whether to restart it, and the delay until
// then.
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

// kill kills the process, which stays down for the given time.
func (m *member) kill(ctx context.Context, down time.Duration) error {
	p := m.current(ctx)
	if p == nil {
		return ctx.Err()
	}
	m.mu.Lock()
	m.stayDown = down
	m.mu.Unlock()
	return p.Kill()
}

// pause stops the process with SIGSTOP, and continues it after d.
func (m *member) pause(ctx context.Context, d time.Duration) error {
	p := m.current(ctx)
	if p == nil {
		return ctx.Err()
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	sleep(ctx, d)
	_ = p.Signal(syscall.SIGCONT)
	return nil
}

// stop asks the process to end. It returns an error if the process does not end in time with exit
// code 0.
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

// sleep waits for d. It returns false early if ctx ends.
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
