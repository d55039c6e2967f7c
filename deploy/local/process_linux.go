package local

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// signalOnParentDeath sets an attribute of a child process that is about to start. It makes the
// kernel send sig to the child when this process dies.
func signalOnParentDeath(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }

// hasArgument reports whether a process runs and has arg among its command-line arguments.
func hasArgument(pid int, arg string) (bool, error) {
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false, nil // ended
	}
	if err != nil {
		return false, err
	}
	args := bytes.Split(cmdline, []byte{0})
	return slices.ContainsFunc(args, func(b []byte) bool { return string(b) == arg }), nil
}

// children returns the ids of a process's children.
func children(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children") // the only error is a bad pattern
	for _, path := range tasks {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(content)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// exited reports whether a process has ended, even if its parent has not waited for it yet: the
// command line is then empty.
func exited(pid int) bool {
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err != nil || len(cmdline) == 0
}
