//go:build !linux

package local

// memoryDir is "": there is no folder in memory that every machine has.
func memoryDir(account) string { return "" }
