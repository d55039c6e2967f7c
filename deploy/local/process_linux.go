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

// signalOnParentDeath has the kernel send sig to the child when this process dies, however it dies.
func signalOnParentDeath(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }

// runsWith says whether a process was started with an argument.
func runsWith(pid int, arg string) (bool, error) {
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

// children are the processes that a process has started, and that have not ended.
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

// gone reports whether a process has ended, also if its parent has not asked how.
func gone(pid int) bool {
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err != nil || len(cmdline) == 0
}
