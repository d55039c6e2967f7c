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
	// pgbouncerName is the name of the server and of its folder.
	pgbouncerName    = "pgbouncer"
	pgbouncerConfig  = "pgbouncer.ini"
	pgbouncerUsers   = "users"
	pgbouncerPIDFile = "pgbouncer.pid"
)

// pgbouncer is a PgBouncer in transaction mode. It implements program.
type pgbouncer struct {
	binary  string
	account account
	data    string   // the folder of its files
	target  *url.URL // of the database behind PgBouncer
	size    int      // maximum number of sessions with PostgreSQL
}

// newPgBouncer finds the program, and creates its missing folder. target is the postgres:// URL of
// a database, with password.
func newPgBouncer(dir *serversDir, target string, size int) (*pgbouncer, error) {
	binary, err := findPgBouncer()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(target)
	if err != nil {
		return nil, errors.New("the pooler's database URL cannot be parsed")
	}
	b := &pgbouncer{binary: binary, account: dir.account, data: dir.file(pgbouncerName), target: u, size: size}
	if err := b.account.mkdir(b.data); err != nil {
		return nil, fmt.Errorf("create the PgBouncer folder: %w", err)
	}
	return b, nil
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
	config, users := filepath.Join(b.data, pgbouncerConfig), filepath.Join(b.data, pgbouncerUsers)
	settings := []string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%s", b.target.Hostname(), b.target.Port()),
		"[pgbouncer]",
		"listen_addr = " + host,
		"listen_port = " + strconv.Itoa(port),
		"unix_socket_dir =",
		"auth_type = scram-sha-256",
		"auth_file = " + users,
		"pidfile = " + filepath.Join(b.data, pgbouncerPIDFile),
		"pool_mode = transaction",
		"default_pool_size = " + strconv.Itoa(b.size),
		"max_client_conn = 500",
		"query_wait_timeout = 5",
		"server_connect_timeout = 3",
		"server_login_retry = 1",
	}
	password, _ := b.target.User.Password()
	err := errors.Join(
		b.account.writeFile(users, quoteUser(b.target.User.Username())+" "+quoteUser(password)+"\n"),
		b.account.writeFile(config, strings.Join(settings, "\n")+"\n"))
	return exec.Command(b.binary, config), err
}

// quoteUser quotes a user name or password for PgBouncer's file of users.
func quoteUser(text string) string { return `"` + strings.ReplaceAll(text, `"`, `""`) + `"` }

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
