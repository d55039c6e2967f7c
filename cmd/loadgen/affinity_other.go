//go:build !linux

package main

// ownCPUs returns no CPUs: only on Linux does loadgen pin itself to CPUs.
func ownCPUs() ([]int, error) { return nil, nil }

// pinSelf does nothing. On Linux it pins this process to the CPUs.
func pinSelf([]int) error { return nil }

// lowerPriority does nothing. On Linux it gives this process the lowest priority.
func lowerPriority() error { return nil }
