package local

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
)

const (
	memoryFolder = "/dev/shm"
	// memoryReserve is the number of bytes that must be free in the folder, and also in the
	// machine's memory.
	memoryReserve = 4 << 30

	tmpfsMagic = 0x01021994 // the type of a file system in memory; see statfs(2)
)

// memoryDir returns a folder in memory that the account can reach. It returns "" if there is none,
// or if less than memoryReserve is free. Tests create and delete thousands of small files, which is
// slow on a disk.
func memoryDir(acc account) string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memoryFolder, &fs); err != nil || fs.Type != tmpfsMagic {
		return ""
	}
	free := int64(fs.Bavail) * fs.Bsize // cannot overflow in practice
	if free < memoryReserve || availableMemory() < memoryReserve || !acc.canReach(memoryFolder) {
		return ""
	}
	return memoryFolder
}

// availableMemory returns the memory, in bytes, that programs can use without swapping; 0 if
// unknown.
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
