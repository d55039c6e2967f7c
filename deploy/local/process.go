package local

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
)

// process is a child process: a server, or one of PostgreSQL's tools.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // the exit error; set before done is closed

	// onDeath is called with err if the process ends while watched is set.
	onDeath func(error)
	watched atomic.Bool
}

// startProcess starts cmd as the account, in a process group of its own. Ctrl-C in a terminal then
// signals only the parent, which still needs the servers while it shuts down. Where the system
// supports it, the child gets deathSignal when the parent dies.
func startProcess(cmd *exec.Cmd, acc account, deathSignal syscall.Signal, onDeath func(error)) (*process, error) {
	cmd.Dir = "/" // the account may not be able to reach the current folder
	cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}, cmd.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if acc.switched {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(acc.uid), Gid: uint32(acc.gid)}
	}
	signalOnParentDeath(cmd.SysProcAttr, deathSignal)
	p := &process{cmd: cmd, done: make(chan struct{}), onDeath: onDeath}
	started := make(chan error)
	go p.run(started)
	return p, <-started
}

// run starts the child and waits for its end, all on one thread. Linux sends the parent-death
// signal when the thread that started the child ends, and the Go runtime may end idle threads.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
	if p.watched.CompareAndSwap(true, false) {
		p.onDeath(p.err)
	}
}

// watch starts the watch for an unexpected end of the process. If the process has already ended,
// either watch returns false or onDeath is called, but not both.
func (p *process) watch() bool {
	p.watched.Store(true)
	select {
	case <-p.done:
		return !p.watched.CompareAndSwap(true, false)
	default:
		return true
	}
}

// signal sends a signal. It stops the watch: the process is expected to end now.
func (p *process) signal(sig syscall.Signal) {
	p.watched.Store(false)
	_ = p.cmd.Process.Signal(sig) // fails only if the process has ended
}

// runAs runs a command as the account and waits for its end. It kills the command when ctx ends.
// variables are NAME=value entries for the command's environment. If the command fails, the error
// contains the end of its output.
func runAs(ctx context.Context, acc account, cmd *exec.Cmd, variables ...string) error {
	out := new(tail)
	cmd.Env = variables
	cmd.Stdout, cmd.Stderr = out, out
	p, err := startProcess(cmd, acc, syscall.SIGKILL, nil)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.signal(syscall.SIGKILL)
		<-p.done
		return ctx.Err()
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Path, p.err, out)
	}
	return nil
}

// tail is a writer that keeps the last tailSize bytes.
type tail struct{ b []byte }

const tailSize = 2048

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if len(t.b) > tailSize {
		t.b = t.b[len(t.b)-tailSize:]
	}
	return len(b), nil
}

func (t *tail) String() string { return string(t.b) }
