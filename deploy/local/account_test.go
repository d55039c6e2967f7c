package local

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

func TestCanReach(t *testing.T) {
	t.Parallel()
	const uid, gid = 12345, 23456 // of no account
	tests := []struct {
		name  string
		mode  os.FileMode
		chown [2]int
		want  bool
	}{
		{"open to all", 0o711, [2]int{-1, -1}, true},
		{"readable only", 0o744, [2]int{-1, -1}, false},
		{"closed", 0o700, [2]int{-1, -1}, false},
		{"own", 0o700, [2]int{uid, -1}, true},
		{"own, closed to its owner", 0o611, [2]int{uid, -1}, false},
		{"own group", 0o710, [2]int{-1, gid}, true},
		{"own group, closed to it", 0o701, [2]int{-1, gid}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := openDir(t)
			inner := filepath.Join(dir, "inner")
			must(t, os.MkdirAll(inner, 0o755))
			if err := os.Chown(dir, tt.chown[0], tt.chown[1]); errors.Is(err, os.ErrPermission) {
				t.Skip("only root can change a folder's owner")
			}
			must(t, os.Chmod(dir, tt.mode))
			t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
			if got := (account{uid, gid, true}).canReach(inner); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// The other tests run as root where CI does. TestNotRoot always runs the servers from an
// unprivileged process.
func TestNotRoot(t *testing.T) {
	t.Parallel()
	requireRoot(t)
	dir := filepath.Dir(openDir(t))
	binary := filepath.Join(dir, "helper")
	b, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(binary, b, 0o755))
	data := filepath.Join(dir, "data")
	must(t, os.Mkdir(data, 0o700))
	must(t, os.Chown(data, 65534, 65534))

	o, cmd, in := startHelper(t, binary, data, &syscall.Credential{Uid: 65534, Gid: 65534})
	if got := query(t, o.DatabaseURL, "SELECT 'answer'"); got != "answer" {
		t.Errorf("got %q", got)
	}
	must(t, in.Close())
	must(t, cmd.Wait())
	checkEnded(t, o)

	// Root runs the servers of this folder as its owner, so that the owner can use it afterwards.
	s := start(t, Options{Dir: data, Ephemeral: true})
	if s.DatabaseURL != o.DatabaseURL {
		t.Errorf("root's servers are at %s, want %s", s.DatabaseURL, o.DatabaseURL)
	}
	stop(t, s)
	_, cmd, in = startHelper(t, binary, data, &syscall.Credential{Uid: 65534, Gid: 65534})
	must(t, in.Close())
	must(t, cmd.Wait())
}

func TestRootRunsServersUnprivileged(t *testing.T) {
	t.Parallel()
	requireRoot(t)
	s := start(t, Options{Dir: openDir(t), Ephemeral: true})
	for _, server := range []*Server{s.Postgres, s.Redis} {
		info, err := os.Stat(filepath.Join("/proc", strconv.Itoa(server.PID())))
		if errors.Is(err, os.ErrNotExist) {
			t.Skip("no /proc")
		}
		must(t, err)
		if uid, _ := owner(info); uid == 0 {
			t.Errorf("%s runs as root", server.program.name())
		}
	}
}

func TestUnreachableDataFolder(t *testing.T) {
	t.Parallel()
	requireRoot(t)
	dir := openDir(t)
	must(t, os.Chmod(filepath.Dir(dir), 0o700))
	o := Options{Dir: dir}
	first := start(t, o)
	t.Cleanup(func() { must(t, os.RemoveAll(first.dir.path)) })
	if filepath.Dir(first.dir.path) != durableBase {
		t.Errorf("the servers' files are in %s", first.dir.path)
	}
	if _, err := os.Stat(filepath.Join(dir, serversName, "postgres.log")); err != nil {
		t.Error(err)
	}
	execSQL(t, first.DatabaseURL, "CREATE TABLE kept AS SELECT 'data' AS v")
	stop(t, first)
	second := start(t, o)
	if got := query(t, second.DatabaseURL, "SELECT v FROM kept"); got != "data" {
		t.Errorf("Postgres kept %q", got)
	}
	stop(t, second)

	must(t, os.RemoveAll(dir))
	third := start(t, o)
	if third.dir.path != first.dir.path || third.DatabaseURL == first.DatabaseURL {
		t.Errorf("a new folder is at %s in %s, the deleted one was at %s in %s",
			third.DatabaseURL, third.dir.path, first.DatabaseURL, first.dir.path)
	}
	if got := query(t, third.DatabaseURL, "SELECT count(*)::text FROM pg_class WHERE relname = 'kept'"); got != "0" {
		t.Error("a new folder has the data of the deleted one")
	}
}

func TestUnreachableTemporaryDataFolder(t *testing.T) {
	t.Parallel()
	requireRoot(t)
	dir := t.TempDir() // not accessible to other users
	s := start(t, Options{Dir: dir, Ephemeral: true, WithoutPostgres: true})
	t.Cleanup(func() { must(t, os.RemoveAll(s.dir.path)) })
	if s.dir.path == filepath.Join(dir, serversName) {
		t.Error("the servers' files are in a folder that their account cannot reach")
	}
	must(t, redisClient(t, s.RedisURL).Ping(t.Context()).Err())
}

func TestSweepRemovesFilesOfDeletedFolders(t *testing.T) {
	t.Parallel()
	requireRoot(t)
	startOne := func() (dir string, s *Servers) {
		dir = t.TempDir() // not accessible to other users
		s = start(t, Options{Dir: dir, Ephemeral: true, WithoutPostgres: true})
		t.Cleanup(func() { must(t, os.RemoveAll(s.dir.path)) })
		old := time.Now().Add(-2 * outsideAge)
		must(t, os.Chtimes(filepath.Join(s.dir.path, lockName), old, old))
		return dir, s
	}
	deleted, first := startOne()
	stop(t, first)
	must(t, os.RemoveAll(deleted))
	_, running := startOne()
	_, third := startOne()
	stop(t, third)
	startOne()
	for _, tt := range []struct {
		name, dir string
		exists    bool
	}{
		{"deleted data folder", first.dir.path, false}, {"running servers", running.dir.path, true},
		{"stopped servers", third.dir.path, true},
	} {
		if _, err := os.Stat(tt.dir); (err == nil) != tt.exists {
			t.Errorf("%s: %s: %v", tt.name, tt.dir, err)
		}
	}
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}
