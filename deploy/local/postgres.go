package local

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// postgresName is the name of the server and of its folder.
	postgresName = "postgres"
	// postgresUser is the name of the superuser and of the database.
	postgresUser = "svc"
	// maxConnections allows a few processes with full pools.
	maxConnections = 200
)

// postgres is a PostgreSQL server with its data in a servers' folder. It implements program.
type postgres struct {
	binaries   pgBinaries
	account    account
	data       string // the PostgreSQL data folder
	password   string
	ephemeral  bool
	replicated bool     // accepts standbys
	libraries  []string // loaded at the start
	certs      *Certificates
}

// newPostgres finds the programs. If there is no PostgreSQL data folder yet, it creates one: empty,
// or for a standby from a copy of the primary.
func newPostgres(ctx context.Context, dir *serversDir, o Options) (*postgres, error) {
	pg := &postgres{
		account: dir.account, data: dir.file(postgresName), password: dir.state.PostgresPassword,
		ephemeral: o.Ephemeral, replicated: o.replicated, libraries: o.Libraries, certs: o.Certificates,
	}
	major, err := dataVersion(pg.data)
	if err != nil {
		return nil, err
	}
	if pg.binaries, err = findPostgres(ctx, dir.account, major); err != nil {
		return nil, err
	}
	if major != 0 {
		return pg, dir.account.requireOwner(pg.data)
	}
	if o.standbyOf != nil {
		pg.password = o.standbyOf.dir.state.PostgresPassword
		dir.state.PostgresPassword = pg.password
		return pg, errors.Join(dir.save(), pg.copyPrimary(ctx, o.standbyOf))
	}
	if err := pg.createData(func(dir string) error { return pg.initdb(ctx, dir) }); err != nil {
		return nil, fmt.Errorf("create the PostgreSQL data folder: %w", err)
	}
	return pg, nil
}

// createData creates the data folder under a temporary name with fill, and renames it. A crash thus
// leaves no incomplete data folder.
func (pg *postgres) createData(fill func(dir string) error) error {
	dir := pg.data + ".new"
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := pg.account.mkdir(dir); err != nil {
		return err
	}
	if err := fill(dir); err != nil {
		return err
	}
	return os.Rename(dir, pg.data)
}

// initdb fills an empty folder with the data of a new server.
func (pg *postgres) initdb(ctx context.Context, dir string) error {
	pwfile := pg.data + ".password"
	if err := pg.account.writeFile(pwfile, pg.password+"\n"); err != nil {
		return err
	}
	defer os.Remove(pwfile)
	args := []string{"-D", dir, "-U", postgresUser, "--pwfile", pwfile, "-A", "scram-sha-256",
		"--locale=C", "--encoding=UTF8"}
	if pg.ephemeral {
		args = append(args, "--no-sync")
	}
	if pg.replicated {
		args = append(args, "--data-checksums") // for pg_rewind
	}
	if err := runAs(ctx, pg.account, exec.Command(filepath.Join(pg.binaries.dir, "initdb"), args...)); err != nil {
		return err
	}
	if pg.replicated {
		if err := pg.configureReplication(dir); err != nil {
			return err
		}
	}
	if pg.certs != nil {
		return pg.requireCertificates(dir)
	}
	return nil
}

func (pg *postgres) name() string { return postgresName }

func (pg *postgres) command(port int) (*exec.Cmd, error) {
	settings := []string{
		"listen_addresses=" + host,
		"port=" + strconv.Itoa(port),
		"unix_socket_directories=", // the default folder may not be writable
		"max_connections=" + strconv.Itoa(maxConnections),
		"max_locks_per_transaction=256", // statements lock the partitions of their tables
		"password_encryption=scram-sha-256",
		"timezone=UTC",
		"log_timezone=UTC",
		"synchronous_commit=on", // even if ephemeral: a killed server keeps its commits
		"logging_collector=off", // the log is the server's standard error
		"shared_preload_libraries=" + strings.Join(pg.libraries, ","),
	}
	switch {
	case pg.replicated: // configureReplication has written the settings
	case pg.ephemeral:
		settings = append(settings, "fsync=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0",
			"max_wal_size=256MB")
	default:
		settings = append(settings, "fsync=on", "full_page_writes=on")
	}
	if pg.certs != nil {
		files, err := pg.certs.write(pg.account, pg.data)
		if err != nil {
			return nil, err
		}
		settings = append(settings, "ssl=on", "ssl_ca_file="+files.ca, "ssl_cert_file="+files.cert,
			"ssl_key_file="+files.key)
	}
	args := []string{"-D", pg.data}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return exec.Command(filepath.Join(pg.binaries.dir, "postgres"), args...), nil
}

func (pg *postgres) signals() signals {
	s := signals{fast: syscall.SIGINT, immediate: syscall.SIGQUIT, orphaned: syscall.SIGINT}
	if pg.ephemeral {
		s.orphaned = syscall.SIGQUIT
	}
	return s
}

// retryable recognises a start that failed because processes of a killed postmaster still run.
func (pg *postgres) retryable(output string) bool {
	return strings.Contains(output, "pre-existing shared memory block")
}

// url returns the postgres:// URL of a database, with user, password and TLS settings.
func (pg *postgres) url(port int, database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(postgresUser, pg.password),
		Host:     address(port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	if pg.certs != nil {
		u.RawQuery = url.Values{
			"sslmode": {"verify-full"}, "sslrootcert": {pg.certs.CAFile}, "sslcert": {pg.certs.ClientCertFile},
			"sslkey": {pg.certs.ClientKeyFile},
		}.Encode()
	}
	return u.String()
}

// requireCertificates configures a new data folder. The server then accepts only TLS connections
// with the user's password and with a certificate for the user.
func (pg *postgres) requireCertificates(dir string) error {
	return pg.account.writeFile(filepath.Join(dir, "pg_hba.conf"),
		"hostssl all all "+host+"/32 scram-sha-256 clientcert=verify-full\n")
}

func (pg *postgres) ping(ctx context.Context, port int) error {
	conn, err := pgx.Connect(ctx, pg.url(port, "postgres"))
	if err == nil {
		return conn.Close(ctx)
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) && strings.HasPrefix(refused.Code, "28") { // wrong password
		err = fmt.Errorf("log in to PostgreSQL: %w (the password in %s is not that of its data)", err, stateName)
		return permanentError{err}
	}
	return err
}

// ensureDatabase creates the database if it does not exist, and returns its URL.
func (pg *postgres) ensureDatabase(ctx context.Context, port int) (string, error) {
	conn, err := pgx.Connect(ctx, pg.url(port, "postgres"))
	if err != nil {
		return "", fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", postgresUser).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, "CREATE DATABASE "+postgresUser)
	}
	if err != nil {
		return "", fmt.Errorf("create the database: %w", err)
	}
	return pg.url(port, postgresUser), nil
}
