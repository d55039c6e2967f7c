//go:build !linux

package main

// ownCPUs returns no CPUs: only on Linux does loadgen pin itself to CPUs.
func ownCPUs() ([]int, error) { return nil, nil }

// pinSelf does nothing. On Linux it pins this process to the CPUs.
func pinSelf([]int) error { return nil }
