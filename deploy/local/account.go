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

// account is the user whom the servers run as.
type account struct {
	uid, gid int
	switched bool // not the user of this process
}

// serverAccount chooses the account. Only root can, and must, choose another one than its own: the
// owner of the data folder if that is not root (so that the owner can still use the
// data), else postgres, else nobody.
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
	return account{}, errors.New("PostgreSQL does not run as root, and there is no account postgres or nobody to run it as")
}

// reaches says whether the account can go into dir: every folder down to it must be
// searchable. Access lists are not looked at.
func (a account) reaches(dir string) bool {
	if !a.switched {
		return true
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(real)
		if err != nil || !a.searches(info) {
			return false
		}
		if parent := filepath.Dir(real); parent != real {
			real = parent
			continue
		}
		return true
	}
}

func (a account) searches(info fs.FileInfo) bool {
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

// mkdir makes a folder that belongs to the account alone. One that is there must belong to it already.
func (a account) mkdir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return a.owns(dir)
	}
	if err != nil {
		return err
	}
	return a.chown(dir)
}

// owns refuses a folder of somebody else, which the server would refuse less clearly.
func (a account) owns(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if uid, _ := owner(info); uid != a.uid {
		return fmt.Errorf("%s belongs to user %d, but the server runs as user %d: use the folder as the user who made it, or another folder",
			dir, uid, a.uid)
	}
	return nil
}

// writeFile writes a file that only the account can read.
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

// inheritOwner gives what root has made in somebody's folder to the owner of the folder.
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

func owner(info fs.FileInfo) (uid, gid int) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, -1
	}
	return int(st.Uid), int(st.Gid)
}
