package local

import (
	"context"
	"errors"
	"net/url"
	"time"
)

// Pair is a primary PostgreSQL and a standby that follows it by streaming replication, for failover
// tests. Only DatabaseURL is safe for concurrent use. Methods that wait give up after a minute,
// except Backup, KillPrimary and Stop.
type Pair struct {
	servers     [2]*Servers
	primary     int // index of the primary
	databaseURL string
}

const (
	// replicaPoll is the interval between checks of a server's state.
	replicaPoll = 10 * time.Millisecond
	// replicaTimeout bounds an operation of a pair or of a group of Redis servers.
	replicaTimeout = time.Minute
)

// TempPair starts a pair in temporary data folders that Stop removes, without Redis. The servers
// keep their commits if their processes are killed, also with o.Ephemeral. Replication is
// asynchronous. TempPair returns an error if o.Certificates is set: the servers of a pair replicate
// without TLS.
func TempPair(ctx context.Context, o Options) (*Pair, error) {
	if o.Certificates != nil {
		return nil, errors.New("a pair of PostgreSQL servers does not support TLS")
	}
	o.WithoutRedis, o.replicated = true, true
	first, err := Temp(ctx, o)
	if err != nil {
		return nil, err
	}
	o.standbyOf = first
	second, err := Temp(ctx, o)
	if err != nil {
		return nil, errors.Join(err, first.Stop(context.WithoutCancel(ctx)))
	}
	p := &Pair{servers: [2]*Servers{first, second}}
	u, err := url.Parse(first.DatabaseURL)
	if err != nil {
		return nil, errors.Join(err, p.Stop(context.WithoutCancel(ctx)))
	}
	query := u.Query()
	query.Set("target_session_attrs", "read-write")
	u.RawQuery = query.Encode()
	u.Host += "," + address(second.Postgres.Port())
	p.databaseURL = u.String()
	if err := p.awaitStreaming(ctx); err != nil {
		return nil, errors.Join(err, p.Stop(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// DatabaseURL returns a postgres:// URL with the addresses of both servers. Clients connect to the
// server that accepts writes.
func (p *Pair) DatabaseURL() string { return p.databaseURL }

// Primary returns the server that accepts writes.
func (p *Pair) Primary() *Servers { return p.servers[p.primary] }

// Standby returns the server that follows the primary. Between Promote and Rejoin, it returns the
// old primary.
func (p *Pair) Standby() *Servers { return p.servers[1-p.primary] }

// Synchronous makes replication synchronous: the primary acknowledges a commit only after the
// standby has flushed it.
func (p *Pair) Synchronous(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	err := p.Primary().exec(ctx, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
	if err != nil {
		return err
	}
	err = awaitTrue(ctx, p.Primary(), "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')")
	if err != nil {
		return err
	}
	return p.CatchUp(ctx)
}

// CatchUp waits until the standby has flushed all commits that the primary had made when CatchUp
// was called.
func (p *Pair) CatchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	position, err := value[string](ctx, p.Primary(), "SELECT pg_current_wal_flush_lsn()::text")
	if err != nil {
		return err
	}
	return awaitTrue(ctx, p.Primary(),
		"SELECT EXISTS (SELECT FROM pg_stat_replication WHERE flush_lsn >= $1::text::pg_lsn)", position)
}

// Detach stops the replication. If the standby is then promoted, later commits of the old primary
// are lost.
func (p *Pair) Detach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	if err := p.Standby().exec(ctx, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	return awaitTrue(ctx, p.Standby(), "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)")
}

// PauseReplay makes the standby receive commits without showing them, until ResumeReplay.
func (p *Pair) PauseReplay(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	if err := p.Standby().exec(ctx, "SELECT pg_wal_replay_pause()"); err != nil {
		return err
	}
	return awaitTrue(ctx, p.Standby(), "SELECT pg_get_wal_replay_pause_state() = 'paused'")
}

// ResumeReplay ends PauseReplay.
func (p *Pair) ResumeReplay(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	return p.Standby().exec(ctx, "SELECT pg_wal_replay_resume()")
}

// Configure changes a setting of the standby and reloads the configuration. The setting must not
// need a restart.
func (p *Pair) Configure(ctx context.Context, setting, value string) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	return p.Standby().exec(ctx, "ALTER SYSTEM SET "+setting+" = '"+value+"'", "SELECT pg_reload_conf()")
}

// KillPrimary kills all processes of the primary with SIGKILL at the same time, as if its machine
// had failed.
func (p *Pair) KillPrimary() { p.Primary().Postgres.KillAll() }

// Promote makes the standby the primary and waits until it accepts writes. The new primary has no
// standby until Rejoin, and then replicates asynchronously.
func (p *Pair) Promote(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	if err := p.Standby().exec(ctx, "SELECT pg_promote(true, 60)"); err != nil {
		return err
	}
	if err := awaitTrue(ctx, p.Standby(), "SELECT NOT pg_is_in_recovery()"); err != nil {
		return err
	}
	p.primary = 1 - p.primary
	return nil
}

// Rejoin makes the killed server a standby of the new primary, and waits until the standby has
// caught up. Commits that only the killed server has are lost. If pg_rewind fails, Rejoin replaces
// the data of the killed server by a copy of the new primary.
func (p *Pair) Rejoin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	if err := p.Primary().exec(ctx, "CHECKPOINT"); err != nil { // pg_rewind reads the timeline of the last checkpoint
		return err
	}
	pg, ok := p.Standby().Postgres.program.(*postgres)
	if !ok {
		return errors.New("the standby is not PostgreSQL")
	}
	if err := pg.rewind(ctx, p.Primary()); err != nil {
		if err := pg.copyPrimary(ctx, p.Primary()); err != nil {
			return err
		}
	}
	if err := p.Standby().Postgres.Start(ctx); err != nil {
		return err
	}
	if err := p.awaitStreaming(ctx); err != nil {
		return err
	}
	return p.CatchUp(ctx)
}

// awaitStreaming waits until the standby is connected to the primary and streams its WAL.
func (p *Pair) awaitStreaming(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	return awaitTrue(ctx, p.Primary(), "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')")
}

// Epoch returns the primary's system identifier (decimal) and timeline (8 hexadecimal digits), with
// a slash between them. Each promotion changes the timeline.
func (p *Pair) Epoch(ctx context.Context) (string, error) {
	return value[string](ctx, p.Primary(),
		"SELECT system_identifier || '/' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) "+
			"FROM pg_control_system()")
}

// Stop stops both servers and removes their data.
func (p *Pair) Stop(ctx context.Context) error {
	return errors.Join(p.Standby().Stop(ctx), p.Primary().Stop(ctx))
}
