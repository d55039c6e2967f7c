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

// stopLeftovers stops the servers that a killed process left running, and removes pid files that
// are truncated or name an unrelated live process. The caller holds the folder's lock, so no live
// process owns the servers.
func stopLeftovers(dir string) error {
	pg, rd := filepath.Join(dir, postgresName), filepath.Join(dir, redisName)
	return errors.Join(
		stopLeftover(filepath.Join(pg, "postmaster.pid"), pg, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL),
		stopLeftover(filepath.Join(rd, redisPIDFile), filepath.Join(rd, redisConfig), syscall.SIGTERM, syscall.SIGKILL),
	)
}

// stopLeftover sends the signals in turn to the process that pidFile names, until it has ended. arg
// is an argument that only this server was started with.
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
		return os.Remove(pidFile) // the id was used again: the server would believe that it runs
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

// awaitExit reports whether the server ends within leftoverTimeout. It polls, because the server is
// not a child of this process, and not every system offers an event for that.
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

// errNoPID reports a pid file that is truncated by a system crash.
var errNoPID = errors.New("no process id")

// readPID reads the first line of a pid file.
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

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
