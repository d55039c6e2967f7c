package local

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

const (
	pgbouncerName   = "pgbouncer"
	pgbouncerConfig = "pgbouncer.ini"
	pgbouncerUsers  = "pgbouncer.users"
)

// pgbouncer is a PgBouncer in transaction mode. It implements program.
type pgbouncer struct {
	binary string
	dir    *serversDir
	target *url.URL // of the database behind PgBouncer
	size   int      // maximum number of sessions with PostgreSQL
}

// newPgBouncer finds the program. target is the postgres:// URL of a database, with password.
func newPgBouncer(dir *serversDir, target string, size int) (*pgbouncer, error) {
	binary, err := findPgBouncer()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(target)
	if err != nil {
		return nil, errors.New("the pooler's database URL cannot be parsed")
	}
	return &pgbouncer{binary: binary, dir: dir, target: u, size: size}, nil
}

func findPgBouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", &MissingError{Program: "PgBouncer", Command: installCommand("pgbouncer")}
}

func (b *pgbouncer) name() string { return pgbouncerName }

// command writes the configuration. The time-outs (in seconds) are those that OPERATIONS.md
// recommends. Settings that command does not write have PgBouncer's defaults.
func (b *pgbouncer) command(port int) (*exec.Cmd, error) {
	settings := []string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%s", b.target.Hostname(), b.target.Port()),
		"[pgbouncer]",
		"listen_addr = " + host,
		"listen_port = " + strconv.Itoa(port),
		"unix_socket_dir =",
		"auth_type = scram-sha-256",
		"auth_file = " + b.dir.file(pgbouncerUsers),
		"pool_mode = transaction",
		"default_pool_size = " + strconv.Itoa(b.size),
		"max_client_conn = 500",
		"query_wait_timeout = 5",
		"server_connect_timeout = 3",
		"server_login_retry = 1",
	}
	password, _ := b.target.User.Password()
	users := fmt.Sprintf("%q %q\n", b.target.User.Username(), password)
	config := b.dir.file(pgbouncerConfig)
	err := errors.Join(b.dir.account.writeFile(b.dir.file(pgbouncerUsers), users),
		b.dir.account.writeFile(config, strings.Join(settings, "\n")+"\n"))
	return exec.Command(b.binary, filepath.Clean(config)), err
}

func (b *pgbouncer) signals() signals {
	return signals{fast: syscall.SIGTERM, immediate: syscall.SIGQUIT, orphaned: syscall.SIGTERM}
}

func (b *pgbouncer) retryable(string) bool { return false }

// url returns the URL of the database through the pooler.
func (b *pgbouncer) url(port int) string {
	u := *b.target
	u.Host = address(port)
	return u.String()
}

func (b *pgbouncer) ping(ctx context.Context, port int) error {
	conn, err := pgx.Connect(ctx, b.url(port))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}
