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
	placeName = "servers"
	lockName  = "lock"
	stateName = "state.json"
	// folderName names the data folder of a place that is kept outside of it.
	folderName = "folder"
)

// durableFallback is where root keeps the servers' files of data folders that the unprivileged
// account cannot reach.
const durableFallback = "/var/lib/svc-local"

// place is the folder with the servers' files, locked by this process.
type place struct {
	dir     string // without links
	account account
	state   state
	lock    *os.File
}

// state is what a start must know of the one before.
type state struct {
	PostgresPassword string `json:"postgresPassword"`
	RedisPassword    string `json:"redisPassword"`
	PostgresPort     int    `json:"postgresPort,omitempty"`
	RedisPort        int    `json:"redisPort,omitempty"`
}

// openPlace finds or makes the place of a data folder and locks it.
func openPlace(o Options) (*place, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	// 0711 lets the servers' account through to its own folders, and nobody look around.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	acc, err := serverAccount(dir)
	if err != nil {
		return nil, err
	}
	p := &place{account: acc}
	if p.dir, err = placeOf(dir, acc, o.Ephemeral); err != nil {
		return nil, fmt.Errorf("data folder %s: %w", dir, err)
	}
	if p.lock, err = lockFolder(p.dir); err != nil {
		var inUse *InUseError
		if errors.As(err, &inUse) {
			inUse.Dir = dir
		}
		return nil, err
	}
	if err := p.load(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if p.dir != filepath.Join(dir, placeName) {
		o.Log.Info("the servers' files are kept outside of the data folder", slog.String("folder", p.dir))
	}
	return p, nil
}

// placeOf returns the folder for the servers' files of a data folder: dir/servers, or where that links to.
func placeOf(dir string, acc account, ephemeral bool) (string, error) {
	link := filepath.Join(dir, placeName)
	real, err := filepath.EvalSymlinks(link)
	if err == nil {
		if !acc.reaches(real) {
			return "", fmt.Errorf("the account that runs the servers (user %d) cannot reach %s", acc.uid, real)
		}
		if real != link { // the folder may have been moved since it was noted
			return real, os.WriteFile(filepath.Join(real, folderName), []byte(dir), 0o600)
		}
		return real, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if acc.reaches(dir) {
		if err := errors.Join(os.Mkdir(link, 0o711), inheritOwner(link)); err != nil {
			return "", err
		}
		return filepath.EvalSymlinks(link)
	}
	base := durableFallback
	if ephemeral {
		base = tempDir(acc)
	}
	return fallback(dir, link, base)
}

// tempDir is a folder for temporary files that the account can reach.
func tempDir(acc account) string {
	if dir := os.TempDir(); acc.reaches(dir) {
		return dir
	}
	return "/tmp"
}

// fallback makes a place outside of the data folder and links to it. The data folder is new, so what stands
// there already is of a deleted folder of the same path.
func fallback(dir, link, base string) (string, error) {
	if err := os.MkdirAll(base, 0o711); err != nil {
		return "", err
	}
	sweepFallbacks(base)
	target := filepath.Join(base, fmt.Sprintf("svc-%x", sha256.Sum256([]byte(dir)))[:20])
	if err := removePlace(target); err != nil {
		return "", err
	}
	if err := os.Mkdir(target, 0o711); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(target, folderName), []byte(dir), 0o600); err != nil {
		return "", err
	}
	if err := os.RemoveAll(link); err != nil { // a link to nowhere
		return "", err
	}
	if err := os.Symlink(target, link); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(link)
}

// removePlace deletes a place that nobody uses any more, servers that still run there included.
func removePlace(dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if uid, _ := owner(info); !info.IsDir() || uid != os.Geteuid() {
		return fmt.Errorf("%s is in the way and not ours", dir)
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := stopLeftovers(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// Lock makes a data folder this process's own until the lock is closed or the process ends. [Start] needs no such lock; it
// is for files beside those of the servers. The error is an [*InUseError] if another live process has it.
func Lock(dir string) (io.Closer, error) {
	f, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// lockFolder takes the lock of a place until the file is closed or the process ends, and notes who
// has it. The error is an [*InUseError] if another process has.
func lockFolder(dir string) (*os.File, error) {
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
	if err := errors.Join(f.Truncate(0), writeAtStart(f, strconv.Itoa(os.Getpid())), inheritOwner(f.Name())); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the data folder: %w", err), f.Close())
	}
	return f, nil
}

func writeAtStart(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

func lockOwner(f *os.File) int {
	var b [20]byte
	n, _ := f.ReadAt(b[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0 // just being written
	}
	return pid
}

// load makes the locked place ready for a start.
func (p *place) load() (err error) {
	if err := stopLeftovers(p.dir); err != nil {
		return err
	}
	if p.state, err = readState(p.dir); err != nil {
		return err
	}
	return p.save() // before a server takes the password
}

// readState reads the state of a place, and completes it with new passwords.
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

// save writes the state so that a crash leaves the old one or the new one.
func (p *place) save() error {
	b, err := json.MarshalIndent(p.state, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(p.dir, stateName)
	if err := writeSynced(path+".new", b); err != nil {
		return fmt.Errorf("write the servers' state: %w", err)
	}
	return os.Rename(path+".new", path)
}

func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close(), inheritOwner(path))
}

// path is the path of a file in the place.
func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

// close gives the lock free; a second call does nothing.
func (p *place) close() error {
	if p.lock == nil {
		return nil
	}
	lock := p.lock
	p.lock = nil
	return lock.Close()
}
