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

// cpuMask is a set of CPUs as the kernel has it.
type cpuMask [16]uint64

func (m *cpuMask) has(cpu int) bool { return m[cpu/64]>>(cpu%64)&1 == 1 }

// ownCPUs are the CPUs that this process may use.
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

// pinSelf moves this process to some CPUs. Processes that it starts from then on are there, too.
func pinSelf(cpus []int) error {
	var mask cpuMask
	for _, cpu := range cpus {
		mask[cpu/64] |= 1 << (cpu % 64)
	}
	defer runtime.GOMAXPROCS(len(cpus))
	for range 2 { // a thread that was just being started has its CPUs from one that was not moved yet
		threads, err := filepath.Glob(procFile(os.Getpid(), "task/*"))
		if err != nil {
			return err
		}
		for _, path := range threads {
			id, _ := strconv.Atoi(filepath.Base(path))
			if err := affinity(syscall.SYS_SCHED_SETAFFINITY, id, &mask); err != nil && err != syscall.ESRCH { //nolint:errorlint // a bare errno
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
