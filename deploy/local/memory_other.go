//go:build !linux

package local

// memoryDir returns "": these systems have no standard folder in memory.
func memoryDir(account) string { return "" }
