package local

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
)

// process is a program that runs as a child of this process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has ended
	err  error         // how it ended, nil for success; set before done is closed

	// onDeath is called with err if the program ends while watched is set.
	onDeath func(error)
	watched atomic.Bool
}

// startProcess starts cmd as the account, in a process group of its own: a Ctrl-C in the terminal is for
// this process alone, which still needs the servers while it shuts down. If this process
// dies, the program gets the signal orphaned, where the system can do that.
func startProcess(cmd *exec.Cmd, acc account, orphaned syscall.Signal, onDeath func(error)) (*process, error) {
	cmd.Dir = "/" // the account may not be able to reach ours
	cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}, cmd.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if acc.switched {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(acc.uid), Gid: uint32(acc.gid)}
	}
	signalOnParentDeath(cmd.SysProcAttr, orphaned)
	p := &process{cmd: cmd, done: make(chan struct{}), onDeath: onDeath}
	started := make(chan error)
	go p.run(started)
	return p, <-started
}

// run is one goroutine on one thread for the whole life of the program: Linux sends the signal when the
// thread that started the program ends, and Go ends threads as it likes.
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

// watch begins the watch for an unexpected end; false if the program has ended already.
func (p *process) watch() bool {
	p.watched.Store(true)
	select {
	case <-p.done:
		return !p.watched.CompareAndSwap(true, false)
	default:
		return true
	}
}

// signal sends a signal that is meant to end the program, which is then no longer watched.
func (p *process) signal(sig syscall.Signal) {
	p.watched.Store(false)
	_ = p.cmd.Process.Signal(sig) // fails only if the program has ended
}

// runAs runs a command to its end as the account, with variables beside the usual ones, and returns what it printed
// with the error.
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

// tail keeps the end of what is written to it.
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
