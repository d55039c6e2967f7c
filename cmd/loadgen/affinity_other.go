//go:build !linux

package main

// ownCPUs are the CPUs that this process may use; none are known here.
func ownCPUs() ([]int, error) { return nil, nil }

// pinSelf would move this process to some CPUs.
func pinSelf([]int) error { return nil }
