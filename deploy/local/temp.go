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

// tempPrefix begins the names of temporary data folders.
const tempPrefix = "svc-local-"

// sweepAge protects a folder that another process is just making from the sweep.
const sweepAge = time.Minute

var sweepOnce sync.Once

// Temp starts servers in a temporary data folder that Stop removes; o.Dir is not looked at. What killed processes have
// left behind is removed first. Ephemeral servers keep their data in memory where there is room, unless TMPDIR says where
// temporary files go.
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

func startTemp(ctx context.Context, o Options) (*Servers, error) {
	if err := os.Chmod(o.Dir, 0o711); err != nil { // let the servers' account through
		return nil, err
	}
	s, err := Start(ctx, o)
	if err != nil {
		return nil, err
	}
	s.temp = o.Dir
	return s, nil
}

// sweep removes the temporary data folders in base that no process owns any more. No base, nothing to do.
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
		err = removePlace(filepath.Join(dir, placeName))
		var inUse *InUseError
		if errors.As(err, &inUse) {
			continue
		}
		if err := errors.Join(err, os.RemoveAll(dir)); err != nil && log != nil {
			log.Warn("cannot remove an old temporary data folder", slog.String("folder", dir), slog.Any("error", err))
		}
	}
}

// fallbackAge is how long after its last start a place outside of its data folder may be taken for left behind: the folder may
// have been moved since.
const fallbackAge = 7 * 24 * time.Hour

// sweepFallbacks removes the places in base whose data folder is gone, or has another place by now. Those that a process
// owns stay, whatever became of their folder.
func sweepFallbacks(base string) {
	places, _ := filepath.Glob(filepath.Join(base, "svc-*")) // the only error is a bad pattern
	for _, place := range places {
		lock, err := os.Lstat(filepath.Join(place, lockName)) // written by every start
		if err != nil || time.Since(lock.ModTime()) < fallbackAge {
			continue
		}
		folder, err := os.ReadFile(filepath.Join(place, folderName))
		if err != nil {
			continue
		}
		if linked, err := filepath.EvalSymlinks(filepath.Join(string(folder), placeName)); err == nil && linked == place {
			continue
		}
		_ = removePlace(place) // one that cannot be removed now is met again by the next start
	}
}
