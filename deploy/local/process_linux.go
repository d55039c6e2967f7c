package local

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
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
