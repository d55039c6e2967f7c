package main

import (
	"bufio"
	"bytes"
	"context"
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

// process is a program that loadgen has started, mostly svc.
type process struct {
	name   string
	cmd    *exec.Cmd
	stderr transcript
	done   chan struct{} // closed when the program has ended
	err    error         // how it ended: nil for exit code 0; set before done is closed
	peak   float64       // peak memory right before terminate, in MB; see peakMemory
}

// startSvc starts svc on the bench's servers, without rate limits. env holds further environment
// variables, and args the command of svc. The reader reads the standard output.
func (b *bench) startSvc(env []string, args ...string) (*process, *bufio.Reader, error) {
	binary, err := b.binary()
	if err != nil {
		return nil, nil, err
	}
	return launch("svc", binary, append([]string{
		"SVC_ENV=sandbox", "SVC_WEBHOOK_LOOPBACK=on", "SVC_DATABASE_URL=" + b.databaseURL,
		"SVC_REDIS_URL=" + b.redisURL, "SVC_MASTER_KEY=" + masterKey,
		"SVC_LOG_LEVEL=WARN", "SVC_RATE_LIMIT=off", "SVC_BATCH_RATE_LIMIT=off",
		"SVC_QUOTA_OPEN_ROWS=1000000000000", // scenarios submit more than a worker settles
	}, env...), args...)
}

// launch starts a program with the environment variables, and returns a reader of its standard
// output. The process is called name and the first argument, of which there must be one.
func launch(name, binary string, env []string, args ...string) (*process, *bufio.Reader, error) {
	return launchWith(nil, name, binary, env, args...)
}

// launchWith is launch of a program with a standard input; nil for none.
func launchWith(
	stdin io.Reader, name, binary string, env []string, args ...string,
) (*process, *bufio.Reader, error) {
	cmd := exec.Command(binary, args...) //nolint:noctx // the scenario ends it
	cmd.Stdin = stdin
	p := &process{name: name + " " + args[0], cmd: cmd, done: make(chan struct{})}
	p.cmd.Env = local.Environ(env...)
	out, in, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = in, &p.stderr
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

// binary returns the path of svc: the flag's, or the file beside this program.
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
		return "", fmt.Errorf("svc is neither beside this program (make build) nor given by --svc: %w", err)
	}
	return path, nil
}

// startAPI starts `svc api` with further environment variables. It returns the base URL once the
// API listens.
func (b *bench) startAPI(env ...string) (*process, string, error) {
	return listening(b.startSvc(append(env, "SVC_LISTEN=127.0.0.1:0"), "api"))
}

// listening waits for the first line of a process's output. The last word of that line is the
// address on which the process listens, or its URL. listening returns the base URL. It takes the
// results of startSvc, including the error.
func listening(p *process, out *bufio.Reader, err error) (*process, string, error) {
	if err != nil {
		return nil, "", err
	}
	line, err := out.ReadString('\n')
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("%s does not listen: %w", p.name, err), p.kill(), p.stderrTail())
	}
	address := strings.TrimSpace(line[strings.LastIndex(line, " ")+1:])
	return p, "http://" + strings.TrimPrefix(address, "http://"), nil
}

// startWorkers starts n `svc worker` with further environment variables.
func (b *bench) startWorkers(n int, env ...string) ([]*process, error) {
	workers := make([]*process, 0, n)
	for range n {
		p, _, err := b.startSvc(env, "worker")
		if err != nil {
			return workers, err
		}
		workers = append(workers, p)
	}
	return workers, nil
}

// terminateAll terminates the processes concurrently. It skips nil, and processes that have ended.
func terminateAll(processes ...*process) error {
	errs := make([]error, len(processes))
	var group sync.WaitGroup
	for i, p := range processes {
		if p != nil && checkRunning(p) == nil {
			group.Go(func() { errs[i] = p.terminate() })
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

// terminate asks the process to end gracefully, and waits up to a minute for its end. It returns an
// error if the process does not end in time, or fails.
func (p *process) terminate() error {
	p.peak = max(p.peak, p.peakMemory())
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		return errors.Join(fmt.Errorf("%s does not end", p.name), p.kill(), p.stderrTail())
	}
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	// SIGTERM itself ends a process that does not handle signals yet.
	if p.err == nil || status.Signaled() && status.Signal() == syscall.SIGTERM {
		return nil
	}
	return errors.Join(fmt.Errorf("%s: %w", p.name, p.err), p.stderrTail())
}

// kill kills the process and waits for its end.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	return ignoreEnded(err)
}

// stderrTail returns the end of the process's log as an error; nil if there is none.
func (p *process) stderrTail() error {
	text, _ := p.stderr.read()
	if len(text) == 0 {
		return nil
	}
	const maxSize = 4 << 10
	return errors.New(string(text[max(0, len(text)-maxSize):]))
}

// admin runs a command of `svc admin` with the environment variables. If the command fails, admin
// returns the lines of its output and the error; otherwise nil.
func admin(ctx context.Context, svc string, env []string, command string) []string {
	cmd := exec.CommandContext(ctx, svc, "admin", command)
	cmd.Env = local.Environ(env...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	return append(strings.Split(strings.TrimSpace(string(out)), "\n"), "svc admin "+command+": "+err.Error())
}

// checkRunning returns an error if one of the processes has ended.
func checkRunning(processes ...*process) error {
	for _, p := range processes {
		select {
		case <-p.done:
			return errors.Join(fmt.Errorf("%s has ended: %s", p.name, p.cmd.ProcessState), p.stderrTail())
		default:
		}
	}
	return nil
}

// peakMemory returns the peak resident memory of the process in MB (10^6 bytes), from /proc. After
// terminate, it returns the peak right before. On systems without /proc, it returns 0.
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

// resetPeakMemory resets the peak that peakMemory returns. It does nothing on systems without
// /proc.
func (p *process) resetPeakMemory() error {
	const resetPeak = "5"
	err := os.WriteFile(procFile(p.cmd.Process.Pid, "clear_refs"), []byte(resetPeak), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// procFile returns the path of a file of a process in /proc.
func procFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// cpuTime returns the CPU time that a process has used, from /proc. It returns 0 on systems without
// /proc.
func cpuTime(pid int) time.Duration {
	return time.Duration(cpuTicks(pid, 2)) * time.Second / ticksPerSecond
}

// treeCPUTime returns the CPU time of a process and its children, including children that have
// ended. For the main process of Postgres, this is the time of the whole server.
func treeCPUTime(pid int) time.Duration {
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

// ticksPerSecond is the number of ticks in a second. A tick is the unit of CPU times in /proc.
const ticksPerSecond = 100

// cpuTicks returns CPU time of a process, in ticks. For an n of 2, it is the user and system time
// of the process. For an n of 4, it includes both times of the children that have ended.
func cpuTicks(pid, n int) (ticks int64) {
	stat, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // after the name, which may contain spaces
	fields := strings.Fields(rest)
	const utime = 11 // index of the user time, the first of four consecutive times
	if len(fields) < utime+n {
		return 0
	}
	for _, field := range fields[utime : utime+n] {
		t, _ := strconv.ParseInt(field, 10, 64)
		ticks += t
	}
	return ticks
}
