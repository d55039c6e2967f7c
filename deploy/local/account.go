package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the operating system user that runs the servers.
type account struct {
	uid, gid int
	switched bool // differs from the user of this process
}

// serverAccount chooses the account. A process that is not root uses its own. For root it is the
// owner of the data folder, so that the owner can still use the data. If root owns the folder, it
// is postgres or nobody.
func serverAccount(dir string) (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	if info, err := os.Stat(dir); err == nil {
		if uid, gid := owner(info); uid != 0 {
			return account{uid, gid, true}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err := errors.Join(err1, err2); err != nil {
			return account{}, fmt.Errorf("account %s: %w", name, err)
		}
		return account{uid, gid, true}, nil
	}
	return account{}, errors.New("PostgreSQL does not run as root: create an account named postgres or nobody")
}

// canReach reports whether the account has search permission on dir and on all its parent folders.
// It takes this process's own account to reach every folder, and ignores access control lists.
func (a account) canReach(dir string) bool {
	if !a.switched {
		return true
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(real)
		if err != nil || !a.canSearch(info) {
			return false
		}
		if parent := filepath.Dir(real); parent != real {
			real = parent
			continue
		}
		return true
	}
}

func (a account) canSearch(info fs.FileInfo) bool {
	uid, gid := owner(info)
	mode := info.Mode().Perm()
	switch {
	case uid == a.uid:
		return mode&0o100 != 0
	case gid == a.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// mkdir creates a folder that only the account can access. An existing folder must belong to the
// account.
func (a account) mkdir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return a.requireOwner(dir)
	}
	if err != nil {
		return err
	}
	return a.chown(dir)
}

// requireOwner returns an error if dir belongs to another user. The server would refuse it with a
// less clear message.
func (a account) requireOwner(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if uid, _ := owner(info); uid != a.uid {
		return fmt.Errorf("%s belongs to user %d, but the server runs as user %d: "+
			"run as the user that created the folder, or use another folder", dir, uid, a.uid)
	}
	return nil
}

// writeFile writes a file that only the account can read. It replaces an existing file.
func (a account) writeFile(path, content string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return err
	}
	return a.chown(path)
}

func (a account) chown(path string) error {
	if !a.switched {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// inheritOwner gives a file that root created to the owner of the file's folder.
func inheritOwner(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	uid, gid := owner(info)
	return os.Lchown(path, uid, gid)
}

// owner returns the user and the group of a file, or -1 where the system does not tell them.
func owner(info fs.FileInfo) (uid, gid int) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, -1
	}
	return int(st.Uid), int(st.Gid)
}
