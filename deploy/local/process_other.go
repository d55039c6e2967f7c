//go:build !linux

package local

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// signalOnParentDeath does nothing: these systems have no such signal. The next start on the data
// folder stops leftover servers.
func signalOnParentDeath(*syscall.SysProcAttr, syscall.Signal) {}

// hasArgument reports whether a process runs and has arg in its command line.
func hasArgument(pid int, arg string) (bool, error) {
	out, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return false, nil // ended
	}
	if err != nil {
		return false, fmt.Errorf("find a leftover server: %w", err)
	}
	return strings.Contains(string(out)+" ", " "+arg+" ") || strings.Contains(string(out), " "+arg+"\n"), nil
}

// children returns nil: these systems do not list the children of a process.
func children(int) []int { return nil }

// exited reports whether a process has ended and its parent has waited for it.
func exited(pid int) bool { return !alive(pid) }
