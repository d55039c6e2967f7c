package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"partnerbilling/deploy/local"
)

// process is a running svc.
type process struct {
	name   string
	cmd    *exec.Cmd
	stderr *ending
	done   chan struct{} // closed when it has ended
	err    error         // how; set before done is closed
	peak   float64       // memory, see peakMemory; kept when it is ended
}

// startSvc starts svc on the scenario's servers, without rate limits. more are variables beside those.
func (b *bench) startSvc(more []string, args ...string) (*process, *bufio.Reader, error) {
	binary, err := b.binary()
	if err != nil {
		return nil, nil, err
	}
	return launch("svc", binary, append([]string{
		"SVC_ENV=sandbox", "SVC_WEBHOOK_LOOPBACK=on", "SVC_DATABASE_URL=" + b.local.DatabaseURL, "SVC_REDIS_URL=" + b.local.RedisURL,
		"SVC_MASTER_KEY=" + b.masterKey, "SVC_LOG_LEVEL=WARN", "SVC_RATE_LIMIT=off", "SVC_BATCH_RATE_LIMIT=off",
	}, more...), args...)
}

// launch starts a program with variables, and returns what it prints.
func launch(name, binary string, env []string, args ...string) (*process, *bufio.Reader, error) {
	p := &process{name: name + " " + args[0], cmd: exec.Command(binary, args...), stderr: &ending{}, done: make(chan struct{})} //nolint:gosec,noctx // the scenario ends it
	p.cmd.Env = local.Environ(env...)
	out, in, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = in, p.stderr
	if err := errors.Join(p.cmd.Start(), in.Close()); err != nil {
		return nil, nil, errors.Join(err, out.Close())
	}
	go func() {
		p.err = p.cmd.Wait()
		_ = out.Close()
		close(p.done)
	}()
	return p, bufio.NewReader(out), nil
}

// binary is the path of svc.
func (b *bench) binary() (string, error) {
	if b.svc != "" {
		return b.svc, nil
	}
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(own), "svc")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the service's binary is not beside this one (make build), nor named by --svc: %w", err)
	}
	return path, nil
}

// startAPI starts `svc api` and returns its base URL, once it listens. more are variables.
func (b *bench) startAPI(more ...string) (*process, string, error) {
	return listening(b.startSvc(append(more, "SVC_LISTEN=127.0.0.1:0"), "api"))
}

// listening waits for a program to say where it listens, in the last word of its first line, and returns that as a base URL.
func listening(p *process, out *bufio.Reader, err error) (*process, string, error) {
	if err != nil {
		return nil, "", err
	}
	line, err := out.ReadString('\n')
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("%s does not listen: %w", p.name, err), p.kill(), p.said())
	}
	return p, "http://" + strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]), nil
}

// startWorkers starts that many `svc worker`.
func (b *bench) startWorkers(n int, more ...string) ([]*process, error) {
	workers := make([]*process, 0, n)
	for range n {
		p, _, err := b.startSvc(more, "worker")
		if err != nil {
			return workers, err
		}
		workers = append(workers, p)
	}
	return workers, nil
}

// terminateAll ends processes gracefully, all at once. Those that have ended are left out.
func terminateAll(processes ...*process) error {
	errs := make([]error, len(processes))
	var group sync.WaitGroup
	for i, p := range processes {
		if p != nil && ended(p) == nil {
			group.Go(func() { errs[i] = p.terminate() })
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

// terminate asks for a graceful end and waits for it.
func (p *process) terminate() error {
	p.peak = max(p.peak, p.peakMemory())
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		return errors.Join(fmt.Errorf("%s does not end", p.name), p.kill(), p.said())
	}
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if p.err == nil || status.Signaled() && status.Signal() == syscall.SIGTERM { // it had only just been started
		return nil
	}
	return errors.Join(fmt.Errorf("%s: %w", p.name, p.err), p.said())
}

// kill is kill -9.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// said is the end of what it has logged, as an error; nil if nothing.
func (p *process) said() error {
	if text := p.stderr.String(); text != "" {
		return errors.New(text)
	}
	return nil
}

// ended reports processes that have ended though nobody has told them to.
func ended(processes ...*process) error {
	for _, p := range processes {
		select {
		case <-p.done:
			return errors.Join(fmt.Errorf("%s has ended: %w", p.name, p.err), p.said())
		default:
		}
	}
	return nil
}

// ending keeps the end of what is written to it.
type ending struct {
	mu   sync.Mutex
	text []byte
}

const endingSize = 4 << 10

func (e *ending) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text = append(e.text, b...)
	e.text = e.text[max(0, len(e.text)-endingSize):]
	return len(b), nil
}

func (e *ending) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return string(e.text)
}

var _ io.Writer = (*ending)(nil)

// peakMemory is the most memory that a process has had at a time, in MB (10^6 bytes). It is read from /proc, and 0 on systems
// without.
func (p *process) peakMemory() float64 {
	status, err := os.ReadFile(procFile(p.cmd.Process.Pid, "status"))
	if err != nil {
		return p.peak
	}
	for line := range bytes.Lines(status) {
		var kB float64
		if _, err := fmt.Sscanf(string(line), "VmHWM: %f kB", &kB); err == nil {
			return kB * 1024 / 1e6
		}
	}
	return 0
}

func procFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// ownTime is how much CPU time a process has used. It is read from /proc, and 0 on systems without.
func ownTime(pid int) time.Duration {
	return time.Duration(cpuTicks(pid, 2)) * time.Second / ticksPerSecond
}

// wholeTime is that of a process and its children, those included that have ended: of Postgres it is the whole server.
func wholeTime(pid int) time.Duration {
	ticks := cpuTicks(pid, 4)
	threads, _ := filepath.Glob(procFile(pid, "task/*/children"))
	for _, path := range threads {
		children, _ := os.ReadFile(path)
		for field := range strings.FieldsSeq(string(children)) {
			child, _ := strconv.Atoi(field)
			ticks += cpuTicks(child, 4)
		}
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// ticksPerSecond is the unit of /proc, the same on every Linux.
const ticksPerSecond = 100

// cpuTicks adds up the first of: user and system time of a process, and of its children that have ended.
func cpuTicks(pid, first int) (ticks int64) {
	stat, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // after the name, which may hold anything
	fields := strings.Fields(rest)
	const utime = 11
	if len(fields) < utime+first {
		return 0
	}
	for _, field := range fields[utime : utime+first] {
		n, _ := strconv.ParseInt(field, 10, 64)
		ticks += n
	}
	return ticks
}
