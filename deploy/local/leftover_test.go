package local

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func TestServersEndWithTheirProcess(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	o, cmd, _ := startHelper(t, os.Args[0], dir, nil)
	execSQL(t, o.DatabaseURL, "CREATE TABLE kept AS SELECT 'data' AS v")
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // "signal: killed"
	if runtime.GOOS == "linux" {
		checkEnded(t, o)
	}

	s := start(t, Options{Dir: dir, Ephemeral: true})
	checkEnded(t, o)
	if got := query(t, s.DatabaseURL, "SELECT v FROM kept"); got != "data" {
		t.Errorf("Postgres kept %q", got)
	}
}

func TestProcessStopsItsServers(t *testing.T) {
	t.Parallel()
	o, cmd, in := startHelper(t, os.Args[0], openDir(t), nil)
	must(t, in.Close())
	must(t, cmd.Wait())
	checkEnded(t, o)
}

// checkEnded waits until the helper's servers have ended.
func checkEnded(t *testing.T, o owned) {
	t.Helper()
	if !awaitExit(o.Postgres, filepath.Join(o.Dir, postgresName)) {
		t.Error("postgres still runs")
	}
	if !awaitExit(o.Redis, filepath.Join(o.Dir, redisName, redisConfig)) {
		t.Error("redis still runs")
	}
}

// Systems without a parent-death signal rely on stopLeftovers.
func TestLeftoversAreStopped(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: openDir(t), Ephemeral: true})
	pids := []int{s.Postgres.PID(), s.Redis.PID()}
	must(t, stopLeftovers(s.dir.path))
	<-s.Died()
	<-s.Died()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is alive", pid)
		}
	}
	must(t, s.Postgres.Start(t.Context()))
	must(t, s.Redis.Start(t.Context()))
}

// A pooler starts for a user and a password that need quotes, and is stopped as a leftover.
func TestLeftoverPoolerIsStopped(t *testing.T) {
	t.Parallel()
	if _, err := findPgBouncer(); err != nil {
		t.Skip(err)
	}
	pg := start(t, Options{Dir: openDir(t), Ephemeral: true, WithoutRedis: true})
	execSQL(t, pg.DatabaseURL, `CREATE ROLE "a""b\c" LOGIN PASSWORD 'd"e\f'`)
	u, err := url.Parse(pg.DatabaseURL)
	must(t, err)
	u.User = url.UserPassword(`a"b\c`, `d"e\f`)
	s := start(t, Options{Dir: openDir(t), Ephemeral: true, WithoutRedis: true, PoolerOf: u.String(), PoolSize: 1})
	pid := s.Pooler.PID()
	must(t, stopLeftovers(s.dir.path))
	<-s.Died()
	if alive(pid) {
		t.Errorf("process %d is alive", pid)
	}
	must(t, s.Pooler.Start(t.Context()))
}

func TestStalePIDFilesEndNoOtherProcess(t *testing.T) {
	t.Parallel()
	bystander := exec.Command("sleep", "600")
	must(t, bystander.Start())
	t.Cleanup(func() { _ = bystander.Wait() })
	t.Cleanup(func() { _ = bystander.Process.Kill() })
	ended := exec.Command("true")
	must(t, ended.Run())

	dir := openDir(t)
	o := Options{Dir: dir, Ephemeral: true}
	stop(t, start(t, o))
	acc, err := serverAccount(dir)
	must(t, err)
	for name, content := range map[string]string{
		"another process": fmt.Sprintf("%d\n", bystander.Process.Pid),
		"no process":      fmt.Sprintf("%d\n", ended.Process.Pid),
		"truncated":       "",
		"all processes":   "-1\n",
	} {
		for _, file := range []string{"postgres/postmaster.pid", "redis/redis.pid"} {
			must(t, acc.writeFile(filepath.Join(dir, serversName, file), content))
		}
		s, err := Start(t.Context(), o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		stop(t, s)
	}
	if err := bystander.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the other process has ended: %v", err)
	}
}

func TestTempRemovesItself(t *testing.T) {
	t.Parallel()
	s, err := Temp(t.Context(), Options{Ephemeral: true, WithoutPostgres: true})
	must(t, err)
	must(t, redisClient(t, s.RedisURL).Ping(t.Context()).Err())
	stop(t, s)
	if _, err := os.Stat(s.temp); !os.IsNotExist(err) {
		t.Errorf("%s still exists: %v", s.temp, err)
	}
}

func TestTempUsesMemoryForEphemeralDataOnly(t *testing.T) {
	for _, tt := range []struct {
		name      string
		ephemeral bool
		tmpdir    string
		want      func(acc account) string
	}{
		{"durable", false, "", tempDir},
		{"ephemeral", true, "", func(acc account) string { return cmp.Or(memoryDir(acc), tempDir(acc)) }},
		{"ephemeral, with TMPDIR", true, openDir(t), tempDir},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("TMPDIR", tt.tmpdir)
			acc, err := serverAccount(os.TempDir())
			must(t, err)
			s, err := Temp(t.Context(), Options{Ephemeral: tt.ephemeral, WithoutPostgres: true})
			must(t, err)
			defer stop(t, s)
			if got, want := filepath.Dir(s.temp), tt.want(acc); got != want {
				t.Errorf("the data is in %s, want %s", got, want)
			}
		})
	}
}

func TestSweepRemovesFoldersOfKilledProcesses(t *testing.T) {
	t.Parallel()
	left, cmd, _ := startHelper(t, os.Args[0], "temp", nil)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // "signal: killed"
	live, err := Temp(t.Context(), Options{Ephemeral: true, WithoutPostgres: true})
	must(t, err)
	defer stop(t, live)
	leftDir, old := filepath.Dir(left.Dir), time.Now().Add(-time.Hour)
	must(t, os.Chtimes(leftDir, old, old))
	must(t, os.Chtimes(live.temp, old, old))

	sweep(filepath.Dir(leftDir), nil)
	checkEnded(t, left)
	if _, err := os.Stat(leftDir); !os.IsNotExist(err) {
		t.Errorf("%s still exists: %v", leftDir, err)
	}
	must(t, redisClient(t, live.RedisURL).Ping(t.Context()).Err())
}
