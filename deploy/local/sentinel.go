package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// sentinelMaster is the name under which the Sentinels monitor the master.
const sentinelMaster = "main"

// SentinelGroup is a Redis master with replicas under three Sentinels, for failover tests. Only URL
// is safe for concurrent use. Methods that wait give up after a minute, except Stop.
type SentinelGroup struct {
	redisGroup
	sentinels        []*Servers
	sentinelPassword string
}

// TempSentinels starts a master with the given number of replicas, and three Sentinels. They fail
// over when the master has not answered two of them for downAfter. Stop stops all servers and
// removes their data. certs may be nil: no TLS.
func TempSentinels(
	ctx context.Context, replicas int, downAfter time.Duration, certs *Certificates,
) (*SentinelGroup, error) {
	g := &SentinelGroup{redisGroup: newRedisGroup(certs), sentinelPassword: rand.Text()}
	if err := g.startAll(ctx, replicas, downAfter); err != nil {
		return nil, errors.Join(err, g.Stop(context.WithoutCancel(ctx)))
	}
	return g, nil
}

// startAll starts the servers and waits until they are ready for a failover.
func (g *SentinelGroup) startAll(ctx context.Context, replicas int, downAfter time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	if err := g.start(ctx); err != nil {
		return err
	}
	port := g.servers[0].Redis.Port()
	for range replicas {
		if err := g.start(ctx, fmt.Sprintf("replicaof %s %d", host, port)); err != nil {
			return err
		}
	}
	settings := []string{
		fmt.Sprintf("sentinel monitor %s %s %d 2", sentinelMaster, host, port),
		"sentinel auth-pass " + sentinelMaster + " " + g.password,
		"sentinel sentinel-pass " + g.sentinelPassword,
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", sentinelMaster, downAfter.Milliseconds()),
		fmt.Sprintf("sentinel failover-timeout %s %d", sentinelMaster, 6*downAfter.Milliseconds()),
	}
	for range 3 {
		s, err := Temp(ctx, Options{
			Ephemeral: true, WithoutPostgres: true, Certificates: g.certs,
			role: redisRole{password: g.sentinelPassword, settings: settings, sentinel: true},
		})
		if err != nil {
			return err
		}
		g.sentinels = append(g.sentinels, s)
	}
	return g.AwaitReplicas(ctx)
}

// URL returns the URL of the group, with the addresses of the Sentinels:
// redis+sentinel://:PASSWORD@HOST:PORT,HOST:PORT/0?master_name=main&sentinel_password=PASSWORD,
// with rediss for TLS.
func (g *SentinelGroup) URL() string {
	var hosts []string
	for _, s := range g.sentinels {
		hosts = append(hosts, address(s.Redis.Port()))
	}
	query := url.Values{"master_name": {sentinelMaster}, "sentinel_password": {g.sentinelPassword}}
	return g.scheme("sentinel") + ":" + g.password + "@" + strings.Join(hosts, ",") + "/0?" + query.Encode()
}

// Sentinels returns the three Sentinels.
func (g *SentinelGroup) Sentinels() []*Servers { return g.sentinels }

// Master returns the server that the Sentinels name as the master.
func (g *SentinelGroup) Master(ctx context.Context) (*Servers, error) {
	var errs []error
	for _, s := range g.sentinels {
		var master []string
		err := onRedis(s, func(c *redis.Client) (err error) {
			master, err = c.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinelMaster).StringSlice()
			return err
		})
		if err == nil && len(master) == 2 {
			return g.byPort(master[1])
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// AwaitFailover waits until the Sentinels have promoted a server other than old, and returns that
// server.
func (g *SentinelGroup) AwaitFailover(ctx context.Context, old *Servers) (*Servers, error) {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	for {
		master, err := g.Master(ctx)
		if err == nil && master != old {
			return master, awaitRedis(ctx, master, func(c *redis.Client) (bool, error) {
				role, err := replicationField(ctx, c, "role")
				return role == "master", err
			})
		}
		if ended := pause(ctx, replicaPoll); ended != nil {
			return nil, fmt.Errorf("no replica is promoted: %w", errors.Join(ended, err))
		}
	}
}

// AwaitReplicas waits until every replica follows the master, and until each Sentinel knows all
// replicas and the other Sentinels. A failover needs both.
func (g *SentinelGroup) AwaitReplicas(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	master, err := g.Master(ctx)
	if err != nil {
		return err
	}
	for _, s := range g.servers {
		if s == master {
			continue
		}
		if err := awaitReplica(ctx, s); err != nil {
			return err
		}
	}
	for _, s := range g.sentinels {
		known := map[string]string{}
		err := awaitRedis(ctx, s, func(c *redis.Client) (bool, error) {
			state, err := c.Do(ctx, "SENTINEL", "MASTER", sentinelMaster).StringSlice()
			clear(known)
			for i := 0; i+1 < len(state); i += 2 {
				known[state[i]] = state[i+1]
			}
			return known["flags"] == "master" && known["num-slaves"] == strconv.Itoa(len(g.servers)-1) &&
				known["num-other-sentinels"] == strconv.Itoa(len(g.sentinels)-1), err
		})
		if err != nil {
			return fmt.Errorf("a Sentinel sees a master with the flags %q, %s replicas and %s other Sentinels: %w",
				known["flags"], known["num-slaves"], known["num-other-sentinels"], err)
		}
	}
	return nil
}

// Stop stops all servers and Sentinels, and removes their data.
func (g *SentinelGroup) Stop(ctx context.Context) error {
	var errs []error
	for _, s := range g.sentinels { // first, so that they do not fail over
		errs = append(errs, s.Stop(ctx))
	}
	return errors.Join(append(errs, g.redisGroup.Stop(ctx))...)
}
