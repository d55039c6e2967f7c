package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"
)

// cpuMask is the kernel's set of CPUs: one bit per CPU.
type cpuMask [16]uint64

func (m *cpuMask) has(cpu int) bool { return m[cpu/64]>>(cpu%64)&1 == 1 }

// ownCPUs returns the CPUs that this process may use.
func ownCPUs() ([]int, error) {
	var mask cpuMask
	if err := affinity(syscall.SYS_SCHED_GETAFFINITY, 0, &mask); err != nil {
		return nil, err
	}
	var cpus []int
	for cpu := range len(mask) * 64 {
		if mask.has(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// pinSelf pins this process to the CPUs. Processes that it starts later inherit them.
func pinSelf(cpus []int) error {
	var mask cpuMask
	for _, cpu := range cpus {
		mask[cpu/64] |= 1 << (cpu % 64)
	}
	defer runtime.GOMAXPROCS(len(cpus))
	for range 2 { // a thread that starts meanwhile may inherit the CPUs of one that was not moved yet
		threads, err := filepath.Glob(procFile(os.Getpid(), "task/*"))
		if err != nil {
			return err
		}
		for _, path := range threads {
			id, _ := strconv.Atoi(filepath.Base(path))
			err := affinity(syscall.SYS_SCHED_SETAFFINITY, id, &mask)
			if err != nil && err != syscall.ESRCH { //nolint:errorlint // a bare errno
				return fmt.Errorf("move to CPUs %v: %w", cpus, err)
			}
		}
	}
	return nil
}

func affinity(call uintptr, thread int, mask *cpuMask) error {
	_, _, errno := syscall.RawSyscall(call, uintptr(thread), unsafe.Sizeof(*mask), uintptr(unsafe.Pointer(mask)))
	if errno != 0 {
		return errno
	}
	return nil
}
