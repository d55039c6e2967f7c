package local

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRestartKeepsDataPortsAndPasswords(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	first := start(t, Options{Dir: dir})
	execSQL(t, first.DatabaseURL, "CREATE TABLE kept AS SELECT 'data' AS v")
	must(t, redisClient(t, first.RedisURL).Set(t.Context(), "kept", "data", 0).Err())
	for setting, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "200",
		"password_encryption": "scram-sha-256", "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
	} {
		if got := query(t, first.DatabaseURL, "SHOW "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	checkRedisConfig(t, first.RedisURL, map[string]string{
		"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction", "bind": "127.0.0.1",
	})
	stop(t, first)
	stop(t, first) // does nothing

	second := start(t, Options{Dir: dir})
	if second.DatabaseURL != first.DatabaseURL || second.RedisURL != first.RedisURL {
		t.Errorf("the second start is at %s and %s, want %s and %s",
			second.DatabaseURL, second.RedisURL, first.DatabaseURL, first.RedisURL)
	}
	if got := query(t, second.DatabaseURL, "SELECT v FROM kept"); got != "data" {
		t.Errorf("Postgres kept %q", got)
	}
	if got, err := redisClient(t, second.RedisURL).Get(t.Context(), "kept").Result(); got != "data" {
		t.Errorf("Redis kept %q, %v", got, err)
	}
}

func TestEphemeralSettings(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: openDir(t), Ephemeral: true})
	for _, setting := range []string{"fsync", "full_page_writes"} {
		if got := query(t, s.DatabaseURL, "SHOW "+setting); got != "off" {
			t.Errorf("%s is %q", setting, got)
		}
	}
	checkRedisConfig(t, s.RedisURL, map[string]string{"appendonly": "no", "save": ""})
}

func checkRedisConfig(t *testing.T, url string, want map[string]string) {
	t.Helper()
	for setting, value := range want {
		got, err := redisClient(t, url).ConfigGet(t.Context(), setting).Result()
		must(t, err)
		if got[setting] != value {
			t.Errorf("%s is %q, want %q", setting, got[setting], value)
		}
	}
}

func TestPasswordsAreRequiredAndSecret(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: openDir(t), Ephemeral: true})
	for _, password := range []string{"", "wrong"} {
		if err := s.Postgres.program.(*postgres).withPassword(password).ping(t.Context(), s.Postgres.port); err == nil {
			t.Errorf("Postgres accepts the password %q", password)
		}
		u, err := url.Parse(s.RedisURL)
		must(t, err)
		u.User = url.UserPassword("", password)
		if err := redisClient(t, u.String()).Ping(t.Context()).Err(); err == nil {
			t.Errorf("Redis accepts the password %q", password)
		}
	}
	err := filepath.WalkDir(s.dir.path, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		secret := strings.Contains(string(b), s.dir.state.PostgresPassword) ||
			strings.Contains(string(b), s.dir.state.RedisPassword)
		if secret && info.Mode().Perm() != 0o600 {
			t.Errorf("%s holds a password, its mode is %v", path, info.Mode())
		}
		return nil
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) { // the servers delete files concurrently
		t.Error(err)
	}
}

func (pg *postgres) withPassword(password string) *postgres {
	other := *pg
	other.password = password
	return &other
}

func TestSecondOwnerIsRefused(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	o := Options{Dir: dir, Ephemeral: true, WithoutPostgres: true}
	first := start(t, o)
	_, err := Start(t.Context(), o)
	var inUse *InUseError
	if !errors.As(err, &inUse) || inUse.PID != os.Getpid() || inUse.Dir != dir {
		t.Fatalf("got %v", err)
	}
	must(t, redisClient(t, first.RedisURL).Ping(t.Context()).Err())
	stop(t, first)
	start(t, o)
}

func TestOccupiedPortsAreReplaced(t *testing.T) {
	t.Parallel()
	o := Options{Dir: openDir(t), Ephemeral: true}
	first := start(t, o)
	stop(t, first)
	for _, s := range []*Server{first.Postgres, first.Redis} {
		l, err := net.Listen("tcp", address(s.Port()))
		must(t, err)
		defer l.Close()
	}
	second := start(t, o)
	if second.Postgres.Port() == first.Postgres.Port() || second.Redis.Port() == first.Redis.Port() {
		t.Error("a server listens on an occupied port")
	}
	if got := query(t, second.DatabaseURL, "SELECT 'answer'"); got != "answer" {
		t.Errorf("got %q", got)
	}
	stop(t, second)

	third := start(t, o)
	if third.Postgres.Port() != second.Postgres.Port() || third.Redis.Port() != second.Redis.Port() {
		t.Error("the new ports were not kept")
	}
}

func TestStopKillAndStartAgain(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: openDir(t)})
	execSQL(t, s.DatabaseURL, "CREATE TABLE rounds (n int)")
	rounds := []struct {
		name string
		end  func(*Server) error
	}{
		{"stop", func(x *Server) error { return x.Stop(context.Background(), Fast) }},
		{"immediate stop", func(x *Server) error { return x.Stop(context.Background(), Immediate) }},
		{"kill", func(x *Server) error { x.Kill(); return nil }},
	}
	for _, round := range rounds {
		execSQL(t, s.DatabaseURL, "INSERT INTO rounds VALUES (1)")
		for _, server := range []*Server{s.Postgres, s.Redis} {
			must(t, round.end(server))
			if server.PID() != 0 || !portFree(server.Port()) {
				t.Errorf("after %s, %s still runs", round.name, server.program.name())
			}
			must(t, server.Start(t.Context()))
			must(t, server.Start(t.Context())) // does nothing
		}
		must(t, redisClient(t, s.RedisURL).Ping(t.Context()).Err())
	}
	if got := query(t, s.DatabaseURL, "SELECT count(*)::text FROM rounds"); got != "3" {
		t.Errorf("%s rounds were kept, want 3", got)
	}
	select {
	case err := <-s.Died():
		t.Errorf("Died reported a requested stop: %v", err)
	default:
	}
}

func TestUnexpectedDeathIsReported(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: openDir(t), Ephemeral: true})
	for _, server := range []*Server{s.Postgres, s.Redis} {
		must(t, syscall.Kill(server.PID(), syscall.SIGKILL))
		err := <-s.Died()
		if !strings.Contains(err.Error(), server.program.name()+" ended unexpectedly: signal: killed") {
			t.Errorf("got %v", err)
		}
	}
}

func TestStopKillsServersWhenContextEnds(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: openDir(t), Ephemeral: true})
	pids := []int{s.Postgres.PID(), s.Redis.PID()}
	// A suspended process reacts only to SIGKILL.
	must(t, syscall.Kill(pids[1], syscall.SIGSTOP))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is alive", pid)
		}
	}
}

func TestCancelledStartLeavesNoServers(t *testing.T) {
	t.Parallel()
	o := Options{Dir: openDir(t), Ephemeral: true}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // ends during initdb
	defer cancel()
	if _, err := Start(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	start(t, o)
}

func TestFailedStartReportsServerOutput(t *testing.T) {
	t.Parallel()
	o := Options{Dir: openDir(t), Ephemeral: true, WithoutRedis: true}
	s := start(t, o)
	stop(t, s)
	must(t, os.WriteFile(s.dir.file("postgres/postgresql.conf"), []byte("no_such_setting = 1\n"), 0o600))
	_, err := Start(t.Context(), o)
	var ended *endedError
	if !errors.As(err, &ended) || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("got %v", err)
	}
}

func TestWrongPasswordFailsStartAtOnce(t *testing.T) {
	t.Parallel()
	o := Options{Dir: openDir(t), Ephemeral: true, WithoutRedis: true}
	s := start(t, o)
	stop(t, s)
	must(t, os.Remove(s.dir.file(stateName)))
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout/2)
	defer cancel()
	_, err := Start(ctx, o)
	var permanent permanentError
	if !errors.As(err, &permanent) {
		t.Errorf("got %v", err)
	}
}
