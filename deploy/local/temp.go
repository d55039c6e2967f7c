package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// tempPrefix is the prefix of temporary data folders.
const tempPrefix = "svc-local-"

// sweepAge is the minimum age of a folder that the sweep removes. Another process may still be
// about to lock a younger folder.
const sweepAge = time.Minute

var sweepOnce sync.Once

// Temp starts servers in a temporary data folder that [Servers.Stop] removes; it ignores o.Dir. A
// process's first call also removes the folders of killed processes. Ephemeral servers keep their
// data in memory if enough is free, unless TMPDIR is set.
func Temp(ctx context.Context, o Options) (*Servers, error) {
	acc, err := serverAccount(os.TempDir())
	if err != nil {
		return nil, err
	}
	base, memory := tempDir(acc), memoryDir(acc)
	sweepOnce.Do(func() {
		for _, base := range []string{base, memory} {
			sweep(base, o.Log)
		}
	})
	if o.Ephemeral && memory != "" && os.Getenv("TMPDIR") == "" {
		base = memory
	}
	dir, err := os.MkdirTemp(base, tempPrefix)
	if err != nil {
		return nil, fmt.Errorf("temporary data folder: %w", err)
	}
	o.Dir = dir
	s, err := startTemp(ctx, o)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// startTemp starts servers in the new data folder o.Dir, which Stop is to remove.
func startTemp(ctx context.Context, o Options) (*Servers, error) {
	if err := os.Chmod(o.Dir, 0o711); err != nil { // the servers' account must be able to enter it
		return nil, err
	}
	s, err := Start(ctx, o)
	if err != nil {
		return nil, err
	}
	s.temp = o.Dir
	return s, nil
}

// sweep removes the temporary data folders in base that no live process owns. It does nothing if
// base is "".
func sweep(base string, log *slog.Logger) {
	if base == "" {
		return
	}
	dirs, _ := filepath.Glob(filepath.Join(base, tempPrefix+"*")) // the only error is a bad pattern
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < sweepAge {
			continue
		}
		if uid, _ := owner(info); uid != os.Geteuid() {
			continue
		}
		err = removeServersDir(filepath.Join(dir, serversName))
		var inUse *InUseError
		if errors.As(err, &inUse) {
			continue
		}
		if err := errors.Join(err, os.RemoveAll(dir)); err != nil && log != nil {
			log.Warn("cannot remove an old temporary data folder", slog.String("folder", dir), slog.Any("error", err))
		}
	}
}

// outsideAge is the minimum time since the last start on a folder before sweepOutside removes the
// folder. After a move of the data folder, only the next start records the new path.
const outsideAge = 7 * 24 * time.Hour

// sweepOutside removes the servers' folders in base whose data folder no longer links to them.
// Folders that a live process owns stay.
func sweepOutside(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, "svc-*")) // the only error is a bad pattern
	for _, dir := range dirs {
		lock, err := os.Lstat(filepath.Join(dir, lockName)) // every start writes the lock file
		if err != nil || time.Since(lock.ModTime()) < outsideAge {
			continue
		}
		folder, err := os.ReadFile(filepath.Join(dir, folderName))
		if err != nil {
			continue
		}
		if linked, err := filepath.EvalSymlinks(filepath.Join(string(folder), serversName)); err == nil &&
			linked == dir {
			continue
		}
		_ = removeServersDir(dir) // on error, the next start tries again
	}
}
