//go:build !linux

package main

// ownCPUs returns no CPUs on this system.
func ownCPUs() ([]int, error) { return nil, nil }

// pinSelf does nothing on this system.
func pinSelf([]int) error { return nil }
