package local

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"
)

// helperEnv makes the test binary a helper process that owns servers, for tests that kill it. Its
// value is the data folder, or "temp".
const helperEnv = "SVC_TEST_LOCAL_HELPER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		os.Exit(ownServers(dir))
	}
	goleak.VerifyTestMain(m)
}

// owned is the helper's report about its servers.
type owned struct {
	Dir, DatabaseURL, RedisURL string
	Postgres, Redis            int // process ids
}

// ownServers starts servers, reports them on standard output, and stops them when standard input
// ends.
func ownServers(dir string) int {
	ctx := context.Background()
	start := Start
	if dir == "temp" {
		start = Temp
	}
	s, err := start(ctx, Options{Dir: dir, Ephemeral: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	out := owned{s.dir.path, s.DatabaseURL, s.RedisURL, s.Postgres.PID(), s.Redis.PID()}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startHelper runs the helper. It returns the helper's report and its standard input.
func startHelper(t *testing.T, binary, dir string, cred *syscall.Credential) (owned, *exec.Cmd, io.Closer) {
	t.Helper()
	cmd := exec.Command(binary)
	cmd.Env = Environ(helperEnv + "=" + dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	stderr := new(strings.Builder)
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, _ := bufio.NewReader(out).ReadBytes('\n')
	var o owned
	if err := json.Unmarshal(line, &o); err != nil {
		_ = cmd.Wait()
		t.Fatalf("the helper reported %q: %v\n%s", line, err, stderr)
	}
	return o, cmd, in
}

// openDir returns the path of a data folder that every account can reach. t.TempDir is not
// accessible to other users.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "svc-test-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o711))
	return filepath.Join(dir, "data")
}

func start(t *testing.T, o Options) *Servers {
	t.Helper()
	s, err := Start(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *Servers) {
	t.Helper()
	must(t, s.Stop(context.Background()))
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// query returns the single value of a statement, as text.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	var s string
	must(t, connect(t, url).QueryRow(t.Context(), sql).Scan(&s))
	return s
}

func execSQL(t *testing.T, url, sql string) {
	t.Helper()
	_, err := connect(t, url).Exec(t.Context(), sql)
	must(t, err)
}

func redisClient(t *testing.T, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	must(t, err)
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
