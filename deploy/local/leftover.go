package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// leftoverTimeout bounds the wait after each signal to a leftover server.
const leftoverTimeout = 10 * time.Second

// stopLeftovers stops the servers that a killed process left running on the servers' folder dir. It
// removes pid files that are truncated or name an unrelated live process. The caller holds the
// folder's lock, so no live process owns the servers.
func stopLeftovers(dir string) error {
	pg, rd, pb := filepath.Join(dir, postgresName), filepath.Join(dir, redisName), filepath.Join(dir, pgbouncerName)
	return errors.Join(
		stopLeftover(filepath.Join(pb, pgbouncerPIDFile), filepath.Join(pb, pgbouncerConfig),
			syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGKILL),
		stopLeftover(filepath.Join(pg, "postmaster.pid"), pg, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL),
		stopLeftover(filepath.Join(rd, redisPIDFile), filepath.Join(rd, redisConfig), syscall.SIGTERM, syscall.SIGKILL),
	)
}

// stopLeftover sends the signals in turn to the process that pidFile names, until that process has
// ended. arg is a command-line argument by which the server is recognised.
func stopLeftover(pidFile, arg string, signals ...syscall.Signal) error {
	pid, err := readPID(pidFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, errNoPID) {
		return os.Remove(pidFile) // PostgreSQL would refuse to start
	}
	if err != nil {
		return err
	}
	isServer, err := hasArgument(pid, arg)
	if err != nil {
		return err
	}
	if !isServer {
		if !alive(pid) {
			return nil // the server handles a stale pid file itself
		}
		return os.Remove(pidFile) // another program has the id now: PostgreSQL would refuse to start
	}
	for _, sig := range signals {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the leftover server (process %d): %w", pid, err)
		}
		if awaitExit(pid, arg) {
			return nil
		}
	}
	return fmt.Errorf("the leftover server (process %d) does not stop", pid)
}

// awaitExit reports whether the server ends within leftoverTimeout. It polls: the server is not a
// child of this process, and not every system reports the end of other processes.
func awaitExit(pid int, arg string) bool {
	deadline := time.Now().Add(leftoverTimeout)
	for pause := time.Millisecond; time.Now().Before(deadline); pause = min(2*pause, 50*time.Millisecond) {
		if isServer, err := hasArgument(pid, arg); err == nil && !isServer {
			return true
		}
		time.Sleep(pause)
	}
	return false
}

// errNoPID reports a pid file without a process id, as a system crash may leave it.
var errNoPID = errors.New("no process id")

// readPID returns the process id in the first line of a pid file.
func readPID(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("%s: %w", path, errNoPID)
	}
	return pid, nil
}

// alive reports whether a process exists. An ended process exists until its parent waits for it.
func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
