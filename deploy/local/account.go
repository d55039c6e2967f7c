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

// account is the operating system user that runs PostgreSQL and the other servers.
type account struct {
	uid, gid int
	switched bool // differs from the user of this process
}

// serverAccount chooses the account for the data folder dir. A process that is not root uses its
// own account. A root process uses the owner of dir, so that the owner can still use the data. If
// root owns dir, the account is postgres or, where that does not exist, the system's account
// without rights.
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
// It assumes that the account of this process reaches every folder. It ignores access control lists
// and supplementary groups.
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

// canSearch reports whether the permission bits of a folder let the account enter it.
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

// requireOwner returns an error if dir belongs to another user. The server itself would refuse such
// a folder with a less clear message.
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

// chown makes the account the owner of a file or folder.
func (a account) chown(path string) error {
	if !a.switched {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// inheritOwner makes the owner of a file's folder the owner of the file, if this process is root.
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

// owner returns the ids of a file's user and group, or -1 where the system does not tell them.
func owner(info fs.FileInfo) (uid, gid int) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, -1
	}
	return int(st.Uid), int(st.Gid)
}
