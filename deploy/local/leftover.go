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

// A server that was left running gets this long for each way to stop.
const leftoverTimeout = 10 * time.Second

// stopLeftovers stops servers that a killed process has left running in a place, and removes pid files that
// name a process of somebody else. The caller has the place's lock, so no live process owns them.
func stopLeftovers(dir string) error {
	pg, rd := filepath.Join(dir, postgresName), filepath.Join(dir, redisName)
	return errors.Join(
		stopLeftover(filepath.Join(pg, "postmaster.pid"), pg, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL),
		stopLeftover(filepath.Join(rd, redisPIDFile), filepath.Join(rd, redisConfig), syscall.SIGTERM, syscall.SIGKILL),
	)
}

// stopLeftover sends one signal after another to the process that a pid file names, until it has ended. arg is the
// argument that only this server was started with.
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
	ours, err := runsWith(pid, arg)
	if err != nil {
		return err
	}
	if !ours {
		if !alive(pid) {
			return nil // the server deals with that
		}
		return os.Remove(pidFile)
	}
	for _, sig := range signals {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the server that was left running (process %d): %w", pid, err)
		}
		if awaitEnd(pid, arg) {
			return nil
		}
	}
	return fmt.Errorf("the server that was left running (process %d) does not stop", pid)
}

// awaitEnd waits until a process that is not our child has ended, of which there is no event on every system.
func awaitEnd(pid int, arg string) bool {
	deadline := time.Now().Add(leftoverTimeout)
	for pause := time.Millisecond; time.Now().Before(deadline); pause = min(2*pause, 50*time.Millisecond) {
		if ours, err := runsWith(pid, arg); err == nil && !ours {
			return true
		}
		time.Sleep(pause)
	}
	return false
}

// errNoPID is the state of a pid file that a crash of the machine has cut off.
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
