// Package local runs a private PostgreSQL and a private Redis from the binaries
// that are installed on the machine: for `svc dev`, and for tests.
//
// The servers listen on ports of 127.0.0.1 that are reserved for them, behind generated passwords, keep
// everything in one data folder, and live no longer than the process that
// started them. A normal end is [Servers.Stop]. If the process is killed, Linux
// tells the servers to shut down; elsewhere the next [Start] on the same folder
// finds what is left and stops it first.
//
// A data folder contains
//
//	lock                  held by the process that has taken [Lock]
//	servers/state.json    ports and passwords, mode 0600
//	servers/lock          held by the process that owns the servers
//	servers/postgres/     PostgreSQL's data
//	servers/redis/        Redis's data and configuration
//	servers/*.log         what the servers print
//
// PostgreSQL refuses to run as root, so a root process runs both servers as the
// owner of the data folder or, if that is root, as `postgres` or `nobody`. Where that
// account cannot reach the data folder (below /root, say), `servers` is a
// symbolic link to a folder that it can reach, see [Options.Dir].
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// Options tells [Start] what to run, and where.
type Options struct {
	// Dir is the data folder; it is created if need be. If this process is root and
	// the unprivileged account cannot reach Dir, then the servers' files are kept in
	// /var/lib/svc-local (Ephemeral: in the folder for temporary files) under a name
	// derived from Dir, and Dir/servers links there. Permissions of the folders above Dir are
	// never changed. Deleting Dir is always a fresh start: what an earlier
	// folder of the same path left behind is removed.
	Dir string

	// Ephemeral gives up durability for speed: no fsync, no Redis persistence. For
	// tests only. Postgres still keeps every commit if it or this process is killed, but a crash of
	// the machine may lose or corrupt the data; Redis begins empty at each start.
	Ephemeral bool

	// WithoutPostgres and WithoutRedis leave a server out.
	WithoutPostgres, WithoutRedis bool

	replicated bool     // Postgres writes what a standby needs
	standbyOf  *Servers // a new Postgres begins as the standby of theirs

	// Log hears of starts, stops and stale servers; nil is silence.
	Log *slog.Logger
}

// Servers are the running servers of one data folder.
type Servers struct {
	// DatabaseURL is a postgres:// URL with the password of the superuser and the
	// database that are both named svc; empty without Postgres.
	DatabaseURL string

	// RedisURL is a redis:// URL with the password, database 0; empty without Redis.
	RedisURL string

	// Postgres and Redis are for tests that stop, kill and restart a server; nil if left out.
	Postgres, Redis *Server

	place *place
	died  chan error
	temp  string // the data folder, if Stop removes it
}

// Start starts the servers on a data folder, or starts them again on the data that is
// there, and returns once both answer. ctx bounds the start alone: the servers
// run until Stop or the end of the process.
//
// The error is a [*MissingError] if a program is not installed, and an [*InUseError] if
// another live process owns the folder.
func Start(ctx context.Context, o Options) (*Servers, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	place, err := openPlace(o)
	if err != nil {
		return nil, err
	}
	s := &Servers{place: place, died: make(chan error, 2)}
	if err := s.start(ctx, o); err != nil {
		// The caller's context may be what ended; the servers must stop all the same.
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Servers) start(ctx context.Context, o Options) error {
	if !o.WithoutPostgres {
		pg, err := newPostgres(ctx, s.place, o)
		if err != nil {
			return err
		}
		s.Postgres = newServer(pg, s.place, o.Log, s.died)
		if err := s.Postgres.boot(ctx, &s.place.state.PostgresPort); err != nil {
			return err
		}
		if s.DatabaseURL, err = pg.prepare(ctx, s.Postgres.port); err != nil {
			return err
		}
	}
	if !o.WithoutRedis {
		rd, err := newRedis(ctx, s.place, o)
		if err != nil {
			return err
		}
		s.Redis = newServer(rd, s.place, o.Log, s.died)
		if err := s.Redis.boot(ctx, &s.place.state.RedisPort); err != nil {
			return err
		}
		s.RedisURL = rd.url(s.Redis.port)
	}
	return nil
}

// Died reports a server that ended though nobody stopped it, at most once for
// each start of a server.
func (s *Servers) Died() <-chan error { return s.died }

// Stop stops the servers in an orderly way and gives the data folder free. A server that
// has not ended when ctx does, or within a minute, is stopped hard: nothing of ours
// runs after Stop. A second call does nothing.
func (s *Servers) Stop(ctx context.Context) error {
	var errs []error
	for _, server := range []*Server{s.Redis, s.Postgres} {
		if server != nil {
			errs = append(errs, server.Stop(ctx, Fast), server.release())
		}
	}
	errs = append(errs, s.place.close())
	if s.temp != "" {
		errs = append(errs, os.RemoveAll(s.temp))
	}
	return errors.Join(errs...)
}

// InUseError says that another live process owns the data folder.
type InUseError struct {
	Dir string // the data folder
	PID int    // the process that owns it, 0 if unknown
}

func (e *InUseError) Error() string {
	owner := "another process"
	if e.PID != 0 {
		owner = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("data folder %s is in use by %s: stop that one first, or choose another folder",
		filepath.Clean(e.Dir), owner)
}
