package main

import (
	"bufio"
	"bytes"
	"context"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"partnerbilling/cmd/cmdtest"
	"partnerbilling/deploy/local"
)

// awaitTimeout bounds each wait for an expected event, on a busy machine.
const awaitTimeout = 3 * time.Minute

// process is a running svc process.
type process struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	stdout *lines
	stderr *lines
	done   chan struct{} // closed when the process has ended
}

// startSvc starts svc with arguments and SVC_… variables. It is killed at the end of the test.
func startSvc(t *testing.T, variables map[string]string, args ...string) *process {
	t.Helper()
	p := &process{
		t: t, name: "svc " + strings.Join(args, " "),
		cmd:    exec.Command(cmdtest.Build(t, "svc"), args...),
		stdout: newLines(), stderr: newLines(), done: make(chan struct{}),
	}
	p.cmd.Env = local.Environ()
	for name, value := range variables {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		p.stdout.end()
		p.stderr.end()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s logged:\n%s", p.name, tail(p.stderr.String()))
		}
	})
	return p
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// kill kills the process with SIGKILL and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// terminate sends SIGTERM, waits for the end and returns the exit code.
func (p *process) terminate() int {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	return p.wait(awaitTimeout)
}

func (p *process) wait(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(within):
		p.t.Fatalf("%s did not end in time", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

// expect waits for a line of standard output that contains text, and returns the line.
func (p *process) expect(text string) string {
	p.t.Helper()
	line, ok := p.stdout.await(p.t.Context(), text)
	if !ok {
		p.t.Fatalf("%s ended or did not print %q in time; its output:\n%s%s", p.name, text, p.stdout,
			tail(p.stderr.String()))
	}
	return line
}

// lines collects the output of a process.
type lines struct {
	mu      sync.Mutex
	text    bytes.Buffer
	ended   bool
	changed chan struct{}
}

func newLines() *lines { return &lines{changed: make(chan struct{})} }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notify()
	return l.text.Write(b)
}

func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.notify()
}

func (l *lines) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// awaitCount waits until the output contains text count times.
func (l *lines) awaitCount(ctx context.Context, text string, count int) bool {
	for {
		l.mu.Lock()
		content, ended, changed := l.text.String(), l.ended, l.changed
		l.mu.Unlock()
		if strings.Count(content, text) >= count {
			return true
		}
		if ended {
			return false
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (l *lines) await(ctx context.Context, text string) (string, bool) {
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	for {
		l.mu.Lock()
		content, ended, changed := l.text.String(), l.ended, l.changed
		l.mu.Unlock()
		for scanner := bufio.NewScanner(strings.NewReader(content)); scanner.Scan(); {
			if strings.Contains(scanner.Text(), text) {
				return scanner.Text(), true
			}
		}
		if ended {
			return "", false
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", false
		}
	}
}

// svc runs a command of svc within this process. It returns the exit code and the output.
func svc(t *testing.T, variables map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var environ []string
	for name, value := range variables {
		environ = append(environ, name+"="+value)
	}
	var out, err bytes.Buffer
	code = run(t.Context(), args, environ, &out, &err)
	return code, out.String(), err.String()
}
