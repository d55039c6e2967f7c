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

// signalOnParentDeath does nothing: there is no such signal here, so the next start on the
// data folder stops what a killed process has left running.
func signalOnParentDeath(*syscall.SysProcAttr, syscall.Signal) {}

// runsWith says whether a process was started with an argument.
func runsWith(pid int, arg string) (bool, error) {
	out, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return false, nil // ended
	}
	if err != nil {
		return false, fmt.Errorf("look for a server that was left running: %w", err)
	}
	return strings.Contains(string(out)+" ", " "+arg+" ") || strings.Contains(string(out), " "+arg+"\n"), nil
}

// children are not told here.
func children(int) []int { return nil }

// gone reports whether a process has ended.
func gone(pid int) bool { return !alive(pid) }
