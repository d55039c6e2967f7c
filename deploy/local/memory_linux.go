package local

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
)

const (
	memoryFolder = "/dev/shm"
	// memoryRoom is what a folder in memory and the machine must have to spare, so that no test run eats up either.
	memoryRoom = 4 << 30

	tmpfsMagic = 0x01021994 // statfs(2)
)

// memoryDir is a folder in memory that the account can reach, or "" if there is none with room. Making and deleting the
// thousands of small files of tests' databases costs a disk's file system more than all of the tests' statements.
func memoryDir(acc account) string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memoryFolder, &fs); err != nil || fs.Type != tmpfsMagic {
		return ""
	}
	if int64(fs.Bavail)*fs.Bsize < memoryRoom || availableMemory() < memoryRoom || !acc.reaches(memoryFolder) { //nolint:gosec // no file system has so many blocks
		return ""
	}
	return memoryFolder
}

// availableMemory is what programs can still have without swapping, in bytes; 0 if that is not known.
func availableMemory() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kib int64
		if n, _ := fmt.Sscanf(lines.Text(), "MemAvailable: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}
