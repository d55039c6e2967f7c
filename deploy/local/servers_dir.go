package local

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Names in a data folder.
const (
	serversName = "servers"
	lockName    = "lock"
	stateName   = "state.json"
	// folderName is a file with the data folder's path. It exists where the servers' files are
	// outside of the data folder.
	folderName = "folder"
)

// durableBase is the parent of servers' folders outside of their data folders. A root process uses
// it if the servers' account cannot reach the data folder.
const durableBase = "/var/lib/svc-local"

// serversDir is the folder with the servers' files, locked by this process.
type serversDir struct {
	path    string // without symbolic links
	account account
	state   state
	lock    *folderLock
}

// state is the content of state.json. It is kept from one start to the next.
type state struct {
	PostgresPassword string `json:"postgresPassword"`
	RedisPassword    string `json:"redisPassword"`
	PostgresPort     int    `json:"postgresPort,omitempty"`
	RedisPort        int    `json:"redisPort,omitempty"`
}

// openServersDir finds or creates the servers' folder of a data folder, and locks it.
func openServersDir(o Options) (*serversDir, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	// 0711 lets the servers' account pass through to its own folders. Only the owner can list dir.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	acc, err := serverAccount(dir)
	if err != nil {
		return nil, err
	}
	d := &serversDir{account: acc}
	if d.path, err = locateServersDir(dir, acc, o.Ephemeral); err != nil {
		return nil, fmt.Errorf("data folder %s: %w", dir, err)
	}
	if d.lock, err = lockFolder(d.path); err != nil {
		var inUse *InUseError
		if errors.As(err, &inUse) {
			inUse.Dir = dir
		}
		return nil, err
	}
	if err := d.load(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	if d.path != filepath.Join(dir, serversName) {
		o.Log.Info("the servers' files are kept outside of the data folder", slog.String("folder", d.path))
	}
	return d, nil
}

// locateServersDir returns the folder for the servers' files of the data folder dir: dir/servers
// or, if that is a link, the link's target. It creates a missing folder. dir has no symbolic links.
func locateServersDir(dir string, acc account, ephemeral bool) (string, error) {
	link := filepath.Join(dir, serversName)
	real, err := filepath.EvalSymlinks(link)
	if err == nil {
		if !acc.canReach(real) {
			return "", fmt.Errorf("the account that runs the servers (user %d) cannot reach %s", acc.uid, real)
		}
		if real != link { // the data folder may have been moved
			return real, os.WriteFile(filepath.Join(real, folderName), []byte(dir), 0o600)
		}
		return real, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if acc.canReach(dir) {
		if err := errors.Join(os.Mkdir(link, 0o711), inheritOwner(link)); err != nil {
			return "", err
		}
		return filepath.EvalSymlinks(link)
	}
	base := durableBase
	if ephemeral {
		base = tempDir(acc)
	}
	return createOutside(dir, link, base)
}

// tempDir returns a folder for temporary files that the account can reach.
func tempDir(acc account) string {
	if dir := os.TempDir(); acc.canReach(dir) {
		return dir
	}
	return "/tmp"
}

// createOutside creates the servers' folder in base, outside of the data folder dir. link becomes a
// symbolic link to it. A folder of the same name in base belonged to a deleted data folder of the
// same path. createOutside removes that folder.
func createOutside(dir, link, base string) (string, error) {
	if err := os.MkdirAll(base, 0o711); err != nil {
		return "", err
	}
	sweepOutside(base)
	target := filepath.Join(base, fmt.Sprintf("svc-%x", sha256.Sum256([]byte(dir)))[:20])
	if err := removeServersDir(target); err != nil {
		return "", err
	}
	if err := os.Mkdir(target, 0o711); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(target, folderName), []byte(dir), 0o600); err != nil {
		return "", err
	}
	if err := os.RemoveAll(link); err != nil { // a dangling link
		return "", err
	}
	if err := os.Symlink(target, link); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(link)
}

// removeServersDir stops the servers that still run on an abandoned servers' folder, and deletes
// the folder. It returns an [*InUseError] if a live process owns the folder.
func removeServersDir(dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if uid, _ := owner(info); !info.IsDir() || uid != os.Geteuid() {
		return fmt.Errorf("%s exists and belongs to another user", dir)
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := stopLeftovers(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// Lock locks an existing data folder until the returned lock is closed or the process ends. [Start]
// has a lock of its own; Lock protects the caller's own files in the data folder. Lock returns an
// [*InUseError] if another live process has the lock.
func Lock(dir string) (io.Closer, error) {
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// folderLock is the lock of a folder.
type folderLock struct{ file *os.File }

// Close releases the lock. Closing the file alone might release it late: a child process that is
// just being started shares the file for a moment.
func (l *folderLock) Close() error {
	return errors.Join(syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN), l.file.Close())
}

// lockFolder locks a folder until the lock is closed or the process ends. It writes this process's
// id into the lock file. It returns an [*InUseError] if another process has the lock.
func lockFolder(dir string) (*folderLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock the data folder: %w", err)
		}
		return nil, &InUseError{Dir: dir, PID: lockOwner(f)}
	}
	if err := errors.Join(f.Truncate(0), writeAtStart(f, strconv.Itoa(os.Getpid())),
		inheritOwner(f.Name())); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the data folder: %w", err), f.Close())
	}
	return &folderLock{f}, nil
}

// writeAtStart writes s at the beginning of the file.
func writeAtStart(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// lockOwner returns the id of the process that has the lock, or 0 if unknown.
func lockOwner(f *os.File) int {
	var b [20]byte
	n, _ := f.ReadAt(b[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0 // the owner has not written its id yet
	}
	return pid
}

// load stops servers that a killed process left running, and reads the state.
func (d *serversDir) load() (err error) {
	if err := stopLeftovers(d.path); err != nil {
		return err
	}
	if d.state, err = readState(d.path); err != nil {
		return err
	}
	return d.save() // before a server uses a new password
}

// readState reads the state of the servers' folder dir, and generates missing passwords.
func readState(dir string) (state, error) {
	var st state
	b, err := os.ReadFile(filepath.Join(dir, stateName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return st, fmt.Errorf("read the servers' state: %w", err)
	default:
		if err := json.Unmarshal(b, &st); err != nil {
			return st, fmt.Errorf("read the servers' state in %s: %w", dir, err)
		}
	}
	if st.PostgresPassword == "" {
		st.PostgresPassword = rand.Text()
	}
	if st.RedisPassword == "" {
		st.RedisPassword = rand.Text()
	}
	return st, nil
}

// save writes the state atomically.
func (d *serversDir) save() error {
	b, err := json.MarshalIndent(d.state, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(d.path, stateName)
	if err := writeSynced(path+".new", b); err != nil {
		return fmt.Errorf("write the servers' state: %w", err)
	}
	return os.Rename(path+".new", path)
}

// writeSynced writes a file and waits until its content is on disk.
func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close(), inheritOwner(path))
}

// file returns the path of a file in the folder.
func (d *serversDir) file(name string) string { return filepath.Join(d.path, name) }

// close releases the lock. A second call does nothing.
func (d *serversDir) close() error {
	if d.lock == nil {
		return nil
	}
	lock := d.lock
	d.lock = nil
	return lock.Close()
}
