package local

import (
	"bytes"
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
	if err != nil {
		return false, nil // ended
	}
	args := bytes.Split(cmdline, []byte{0})
	return slices.ContainsFunc(args, func(b []byte) bool { return string(b) == arg }), nil
}
