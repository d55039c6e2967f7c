package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// redisGroup holds the Redis servers of a Cluster or of a [SentinelGroup], without the Sentinels.
// The servers share a password. They lose their data at a restart, but keep their configuration.
type redisGroup struct {
	servers  []*Servers
	password string
	certs    *Certificates
}

// replicaSettings shorten the time until a replica follows its master.
var replicaSettings = []string{"repl-diskless-sync-delay 0", "repl-ping-replica-period 1"}

func newRedisGroup(certs *Certificates) redisGroup {
	return redisGroup{password: rand.Text(), certs: certs}
}

// start starts a server of the group. settings are further lines of its configuration.
func (g *redisGroup) start(ctx context.Context, settings ...string) error {
	settings = append(slices.Clone(settings), "masterauth "+g.password)
	s, err := Temp(ctx, Options{
		Ephemeral: true, WithoutPostgres: true, Certificates: g.certs,
		role: redisRole{password: g.password, settings: append(settings, replicaSettings...)},
	})
	if err == nil {
		g.servers = append(g.servers, s)
	}
	return err
}

// Servers returns all servers, masters and replicas.
func (g *redisGroup) Servers() []*Servers { return g.servers }

// scheme returns the beginning of the group's URL. kind is "cluster" or "sentinel".
func (g *redisGroup) scheme(kind string) string {
	if g.certs != nil {
		return "rediss+" + kind + "://"
	}
	return "redis+" + kind + "://"
}

// byPort returns the server that listens on a port.
func (g *redisGroup) byPort(port string) (*Servers, error) {
	for _, s := range g.servers {
		if strconv.Itoa(s.Redis.Port()) == port {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no server of the group has the port %s", port)
}

// Detach cuts a replica off from its master until Attach: the replica misses all writes meanwhile.
func (g *redisGroup) Detach(ctx context.Context, replica *Servers) error {
	return onRedis(replica, func(c *redis.Client) error {
		if err := c.ConfigSet(ctx, "masterauth", "wrong").Err(); err != nil {
			return err
		}
		return c.Do(ctx, "CLIENT", "KILL", "TYPE", "master").Err()
	})
}

// Attach lets a detached replica follow its master again.
func (g *redisGroup) Attach(ctx context.Context, replica *Servers) error {
	return onRedis(replica, func(c *redis.Client) error {
		if err := c.ConfigSet(ctx, "masterauth", g.password).Err(); err != nil {
			return err
		}
		return c.ConfigRewrite(ctx).Err() // a Sentinel may have saved the wrong password meanwhile
	})
}

// Stop stops all servers and removes their data.
func (g *redisGroup) Stop(ctx context.Context) error {
	var errs []error
	for _, s := range g.servers {
		errs = append(errs, s.Stop(ctx))
	}
	return errors.Join(errs...)
}

// onRedis calls do with a client of the server.
func onRedis(s *Servers, do func(*redis.Client) error) error {
	r, ok := s.Redis.program.(*redisServer)
	if !ok {
		return errors.New("the server is not Redis")
	}
	client, err := r.client(s.Redis.Port())
	if err != nil {
		return err
	}
	defer client.Close()
	return do(client)
}

// awaitRedis repeats a check of the server until the check returns true or ctx ends. A check that
// returns false and an error is repeated too.
func awaitRedis(ctx context.Context, s *Servers, check func(*redis.Client) (bool, error)) error {
	return onRedis(s, func(c *redis.Client) error {
		for {
			ok, err := check(c)
			if ok {
				return nil
			}
			if ended := pause(ctx, replicaPoll); ended != nil {
				return fmt.Errorf("the state of Redis does not change: %w", errors.Join(ended, err))
			}
		}
	})
}

// replicationField returns a field of the server's answer to INFO replication, or "" if the answer
// lacks it.
func replicationField(ctx context.Context, c *redis.Client, field string) (string, error) {
	info, err := c.Info(ctx, "replication").Result()
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value), err
		}
	}
	return "", err
}

// awaitReplica waits until the server is a replica that is connected to its master.
func awaitReplica(ctx context.Context, s *Servers) error {
	var link string
	err := awaitRedis(ctx, s, func(c *redis.Client) (ok bool, err error) {
		link, err = replicationField(ctx, c, "master_link_status")
		return link == "up", err
	})
	if err != nil {
		return fmt.Errorf("the server on port %d has the link %q to its master: %w", s.Redis.Port(), link, err)
	}
	return nil
}
