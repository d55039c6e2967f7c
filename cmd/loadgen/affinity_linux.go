package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"
)

// cpuMask is a set of CPUs in the kernel's form: one bit per CPU, for up to 1024 CPUs.
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

// pinSelf pins this process to the CPUs, and sets GOMAXPROCS to their number. Processes that it
// starts later inherit the CPUs.
func pinSelf(cpus []int) error {
	var mask cpuMask
	for _, cpu := range cpus {
		mask[cpu/64] |= 1 << (cpu % 64)
	}
	defer runtime.GOMAXPROCS(len(cpus))
	return eachThread(func(id int) error {
		err := affinity(syscall.SYS_SCHED_SETAFFINITY, id, &mask)
		if err == nil || errors.Is(err, syscall.ESRCH) { // the thread has ended
			return nil
		}
		return fmt.Errorf("move to CPUs %v: %w", cpus, err)
	})
}

// lowerPriority gives this process the lowest priority, and the processes that it starts later.
func lowerPriority() error {
	const lowest = 19
	return eachThread(func(id int) error {
		err := syscall.Setpriority(syscall.PRIO_PROCESS, id, lowest)
		if errors.Is(err, syscall.ESRCH) { // the thread has ended
			return nil
		}
		return os.NewSyscallError("setpriority", err)
	})
}

// eachThread calls set with the id of each thread of this process. Threads that start later inherit
// what it sets.
func eachThread(set func(id int) error) error {
	// A thread that starts during the first pass may inherit from one that is not set yet.
	for range 2 {
		threads, err := filepath.Glob(procFile(os.Getpid(), "task/*"))
		if err != nil {
			return err
		}
		for _, path := range threads {
			id, _ := strconv.Atoi(filepath.Base(path))
			if err := set(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// affinity reads or sets the CPUs of a thread. call is the number of the system call. Thread 0 is
// the calling thread.
func affinity(call uintptr, thread int, mask *cpuMask) error {
	_, _, errno := syscall.RawSyscall(call, uintptr(thread), unsafe.Sizeof(*mask), uintptr(unsafe.Pointer(mask)))
	if errno != 0 {
		return errno
	}
	return nil
}
