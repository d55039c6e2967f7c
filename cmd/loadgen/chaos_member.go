package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"partnerbilling/deploy/local"
)

// member is one process of the fleet. However it ends, it is started again, as an orchestrator would, until the fleet ends.
type member struct {
	name string
	env  []string
	svc  string   // the binary
	args []string // its command
	said *transcript

	mu       sync.Mutex
	process  *os.Process // nil while it is down
	stayDown time.Duration
	done     chan struct{} // closed when it is not started again
	ending   bool
	lastExit int
}

// restartAfter is how long after an end that nobody asked for a process is started again.
const restartAfter = 200 * time.Millisecond

// run keeps the process up until ctx ends, which kills it, or until stop.
func (m *member) run(ctx context.Context) error {
	defer close(m.done)
	for {
		cmd := exec.CommandContext(ctx, m.svc, m.args...)
		cmd.Env = local.Environ(m.env...)
		cmd.Stdout, cmd.Stderr = m.said, m.said
		cmd.WaitDelay = time.Second
		again, err := m.start(cmd)
		if !again || err != nil {
			return err
		}
		_ = cmd.Wait() // killed, most likely
		pause, again := m.ended(cmd)
		if !again || !sleep(ctx, pause) {
			return nil
		}
	}
}

// start starts the process, unless the fleet ends.
func (m *member) start(cmd *exec.Cmd) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ending {
		return false, nil
	}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start %s: %w", m.name, err)
	}
	m.process = cmd.Process
	return true, nil
}

func (m *member) ended(cmd *exec.Cmd) (pause time.Duration, again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process, m.lastExit = nil, cmd.ProcessState.ExitCode()
	pause, m.stayDown = max(m.stayDown, restartAfter), 0
	return pause, !m.ending
}

// current waits until the process is up.
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

// kill is kill -9; the process then stays down for a while.
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

// pause stops the process for a while with SIGSTOP. One that is killed meanwhile stays dead.
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

// stop asks the process to end, and says so if it does not do that well.
func (m *member) stop(within time.Duration) error {
	m.mu.Lock()
	m.ending = true
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

// transcript keeps the end of what a process printed, and notices what no process of ours may print, whatever is done to it.
type transcript struct {
	mu    sync.Mutex
	end   []byte
	fatal []string
}

const transcriptSize = 1 << 20

var fatalWords = []string{"panic:", "fatal error:", "DATA RACE", "concurrent map"}

// Write implements io.Writer.
func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for line := range bytes.Lines(b) {
		for _, word := range fatalWords {
			if len(t.fatal) < 10 && bytes.Contains(line, []byte(word)) {
				t.fatal = append(t.fatal, strings.TrimSpace(string(line)))
			}
		}
	}
	t.end = append(t.end, b...)
	if len(t.end) > 2*transcriptSize {
		t.end = append([]byte(nil), t.end[len(t.end)-transcriptSize:]...)
	}
	return len(b), nil
}

func (t *transcript) read() (end []byte, fatal []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.end), t.fatal
}

// sleep waits, and reports whether ctx is still alive.
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
