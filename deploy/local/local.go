// Package local runs a private PostgreSQL and a private Redis for `svc dev` and for tests. It uses
// the programs that are installed on the machine. For tests it also runs PgBouncer ([Options]), a
// [Pair] of PostgreSQL servers, a Redis master under Sentinels, and a Redis Cluster.
//
// The servers listen on reserved ports of 127.0.0.1 and require generated passwords. They keep all
// data in one data folder, and end with the process that started them. [Servers.Stop] stops them in
// an orderly way. If the process is killed, Linux signals the servers to shut down. On other
// systems, the next [Start] on the same folder first stops servers that are still running.
//
// A data folder contains
//
//	lock                  held by the process that called [Lock]
//	servers/state.json    ports and passwords, mode 0600
//	servers/lock          held by the process that owns the servers
//	servers/folder        the data folder's path, if servers is a link
//	servers/postgres/     PostgreSQL's data
//	servers/redis/        Redis's data and configuration
//	servers/pgbouncer/    PgBouncer's configuration
//	servers/*.log         the servers' output
//
// PostgreSQL refuses to run as root. A root process therefore runs both servers as the owner of the
// data folder or, if root owns it, as `postgres` or `nobody`. If that account cannot reach the data
// folder, for example below /root, `servers` is a symbolic link to a folder that it can reach. See
// [Options.Dir].
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// Options configures [Start].
type Options struct {
	// Dir is the data folder; Start creates it if necessary. If this process is root and the
	// unprivileged account cannot reach Dir, the servers' files are kept elsewhere and Dir/servers
	// links there. That folder's name derives from Dir. It is in /var/lib/svc-local, or in the
	// folder for temporary files if Ephemeral is set. Permissions of the folders above Dir are
	// never changed. Deleting Dir always leads to a fresh start: Start removes files of an earlier
	// folder with the same path.
	Dir string

	// Ephemeral gives up durability for speed: no fsync, and no Redis persistence. It is for tests
	// only. Postgres keeps every commit if the server or this process is killed, but a system crash
	// may lose or corrupt the data. Redis starts empty.
	Ephemeral bool

	// Libraries lists extensions that Postgres loads at its start, such as pg_stat_statements.
	Libraries []string

	// WithoutPostgres and WithoutRedis omit a server.
	WithoutPostgres, WithoutRedis bool

	// Certificates, if set, make PostgreSQL and Redis accept only TLS connections of clients with a
	// certificate of the same authority.
	Certificates *Certificates

	// PoolerOf is a postgres:// URL with password. If it is set, Start starts no PostgreSQL, but a
	// PgBouncer in transaction mode in front of that database. PgBouncer opens at most PoolSize
	// sessions with the database.
	PoolerOf string
	PoolSize int

	replicated bool      // Postgres accepts standbys
	standbyOf  *Servers  // a new Postgres becomes a standby of this primary
	role       redisRole // of Redis in a group

	// Log receives the starts and stops of servers, and warnings. If nil, nothing is logged.
	Log *slog.Logger
}

// Servers are the running servers of one data folder.
type Servers struct {
	// DatabaseURL is a postgres:// URL with password. User (a superuser) and database are both
	// named svc. With a pooler, it is [Options.PoolerOf] with the pooler's address. It is empty
	// without Postgres and pooler.
	DatabaseURL string

	// RedisURL is a redis:// URL with password, for database 0; rediss:// with certificates. It is
	// empty without Redis.
	RedisURL string

	// Postgres, Redis and Pooler are handles for tests that stop, kill and restart a server. They
	// are nil for an omitted server.
	Postgres, Redis, Pooler *Server

	dir  *serversDir
	died chan error
	temp string // the data folder, if Stop removes it
}

// Start starts the servers of a data folder and returns once they accept queries. Existing data is
// kept. ctx bounds only the start: the servers run until Stop or the end of the process.
//
// Start returns a [*MissingError] if a program is not installed, and an [*InUseError] if another
// live process owns the folder.
func Start(ctx context.Context, o Options) (*Servers, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := openServersDir(o)
	if err != nil {
		return nil, err
	}
	s := &Servers{dir: dir, died: make(chan error, 2)}
	if err := s.start(ctx, o); err != nil {
		// ctx may have ended, and Stop must run all the same.
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// start starts the servers that o selects, and sets their handles and URLs.
func (s *Servers) start(ctx context.Context, o Options) error {
	switch {
	case o.PoolerOf != "":
		pooler, err := newPgBouncer(s.dir, o.PoolerOf, o.PoolSize)
		if err != nil {
			return err
		}
		s.Pooler = newServer(pooler, s.dir, o.Log, s.died)
		port := 0 // the pooler keeps no port between starts
		if err := s.Pooler.boot(ctx, &port); err != nil {
			return err
		}
		s.DatabaseURL = pooler.url(s.Pooler.port)
	case !o.WithoutPostgres:
		pg, err := newPostgres(ctx, s.dir, o)
		if err != nil {
			return err
		}
		s.Postgres = newServer(pg, s.dir, o.Log, s.died)
		if err := s.Postgres.boot(ctx, &s.dir.state.PostgresPort); err != nil {
			return err
		}
		if s.DatabaseURL, err = pg.ensureDatabase(ctx, s.Postgres.port); err != nil {
			return err
		}
	}
	if !o.WithoutRedis {
		rd, err := newRedis(ctx, s.dir, o)
		if err != nil {
			return err
		}
		s.Redis = newServer(rd, s.dir, o.Log, s.died)
		if err := s.Redis.boot(ctx, &s.dir.state.RedisPort); err != nil {
			return err
		}
		s.RedisURL = rd.url(s.Redis.port)
	}
	return nil
}

// Died returns a channel that receives an error when a server ends without a call of Stop, Kill or
// KillAll. Each start of a server leads to at most one error.
func (s *Servers) Died() <-chan error { return s.died }

// Stop stops the servers in an orderly way and releases the data folder. It kills a server that has
// not ended after a minute or when ctx ends, and then returns an error. All servers have ended when
// Stop returns. A second call does nothing.
func (s *Servers) Stop(ctx context.Context) error {
	var errs []error
	for _, server := range []*Server{s.Pooler, s.Redis, s.Postgres} {
		if server != nil {
			errs = append(errs, server.Stop(ctx, Fast), server.release())
		}
	}
	errs = append(errs, s.dir.close())
	if s.temp != "" {
		errs = append(errs, os.RemoveAll(s.temp))
	}
	return errors.Join(errs...)
}

// InUseError reports a data folder that another live process owns.
type InUseError struct {
	Dir string // the data folder
	PID int    // the owning process, 0 if unknown
}

func (e *InUseError) Error() string {
	owner := "another process"
	if e.PID != 0 {
		owner = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("data folder %s is in use by %s: stop that process first, or choose another folder",
		filepath.Clean(e.Dir), owner)
}
