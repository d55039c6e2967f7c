package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
)

// replicationSettings returns the settings of both servers of a [Pair]. Ephemeral servers go
// without fsync: a killed server keeps its commits all the same. pg_rewind needs full_page_writes,
// and the WAL since the servers diverged.
func (pg *postgres) replicationSettings() []string {
	settings := []string{
		"full_page_writes=on", "wal_level=replica", "hot_standby=on", "max_wal_senders=10", "wal_keep_size=64MB",
		"wal_retrieve_retry_interval=100ms", "wal_receiver_status_interval=1s",
	}
	if pg.ephemeral {
		return append(settings, "fsync=off", "max_wal_size=128MB", "min_wal_size=32MB")
	}
	return append(settings, "fsync=on")
}

// configureReplication writes the settings into the postgresql.conf of a new data folder. There
// they also hold when pg_rewind starts the server itself.
func (pg *postgres) configureReplication(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n" + strings.Join(pg.replicationSettings(), "\n") + "\n")
	return errors.Join(err, f.Close())
}

// tool returns the command of a program in the server's installation.
func (pg *postgres) tool(name string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(pg.binaries.dir, name), args...)
}

// login returns the environment variables with which a tool logs in to PostgreSQL.
func (pg *postgres) login() []string { return []string{"PGPASSWORD=" + pg.password} }

// copyPrimary replaces the data folder by a base backup of the primary, for a new standby.
func (pg *postgres) copyPrimary(ctx context.Context, primary *Servers) error {
	if err := os.RemoveAll(pg.data); err != nil {
		return err
	}
	err := pg.createData(func(dir string) error {
		args := []string{"-D", dir, "-R", "-X", "stream", "-c", "fast", "-d", primary.conninfo()}
		args = append(args, pg.syncFlags()...)
		return runAs(ctx, pg.account, pg.tool("pg_basebackup", args...), pg.login()...)
	})
	if err != nil {
		return fmt.Errorf("copy the primary: %w", err)
	}
	return nil
}

// rewind turns the data folder of a killed primary into the data folder of a standby. primary is
// the promoted server. Commits that only the killed server has are lost.
func (pg *postgres) rewind(ctx context.Context, primary *Servers) error {
	args := []string{"-D", pg.data, "-R", "--source-server", primary.conninfo() + " dbname=postgres"}
	args = append(args, pg.syncFlags()...)
	if err := runAs(ctx, pg.account, pg.tool("pg_rewind", args...), pg.login()...); err != nil {
		return fmt.Errorf("rewind the old primary: %w", err)
	}
	return nil
}

// syncFlags returns the flags that let the tools of an ephemeral server skip the wait for the disk.
func (pg *postgres) syncFlags() []string {
	if pg.ephemeral {
		return []string{"--no-sync"}
	}
	return nil
}

// conninfo returns the server's connection string in libpq's form, without the password.
func (s *Servers) conninfo() string {
	return fmt.Sprintf("host=%s port=%d user=%s sslmode=disable", host, s.Postgres.Port(), postgresUser)
}

// exec runs statements on the server, each in its own transaction.
func (s *Servers) exec(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.DatabaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// value returns the only value in the only row of a query.
func value[T any](ctx context.Context, s *Servers, query string, args ...any) (v T, err error) {
	conn, err := pgx.Connect(ctx, s.DatabaseURL)
	if err != nil {
		return v, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return v, conn.QueryRow(ctx, query, args...).Scan(&v)
}

// awaitTrue repeats a query until the query returns true or ctx ends. A failed query is not
// repeated.
func awaitTrue(ctx context.Context, s *Servers, query string, args ...any) error {
	conn, err := pgx.Connect(ctx, s.DatabaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for {
		var ok bool
		if err := conn.QueryRow(ctx, query, args...).Scan(&ok); err != nil || ok {
			return err
		}
		if err := pause(ctx, replicaPoll); err != nil {
			return errors.Join(fmt.Errorf("%s stays false", query), err)
		}
	}
}
