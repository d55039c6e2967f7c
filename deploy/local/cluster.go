package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// clusterSlots is the number of slots of a Redis Cluster.
const clusterSlots = 16384

// RedisCluster is a Redis Cluster of several masters with a replica each, for failover tests. Only
// URL is safe for concurrent use. Methods that wait give up after a minute, except Stop.
type RedisCluster struct {
	redisGroup
	buses []*Port             // for the connections between the servers, in the order of the servers
	ids   map[*Servers]string // node ids
}

// TempCluster starts a Cluster of the given number of masters, and as many replicas. A server that
// does not answer the others for nodeTimeout counts as dead. Stop stops the servers and removes
// their data. certs may be nil: no TLS.
func TempCluster(
	ctx context.Context, masters int, nodeTimeout time.Duration, certs *Certificates,
) (*RedisCluster, error) {
	c := &RedisCluster{redisGroup: newRedisGroup(certs), ids: map[*Servers]string{}}
	if err := c.startAll(ctx, masters, nodeTimeout); err != nil {
		return nil, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// startAll starts the servers, divides the slots equally between the masters, and gives each master
// a replica.
func (c *RedisCluster) startAll(ctx context.Context, masters int, nodeTimeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	for i := range 2 * masters {
		if err := c.startNode(ctx, i, nodeTimeout); err != nil {
			return err
		}
	}
	for i, s := range c.servers[:masters] {
		err := onRedis(s, func(r *redis.Client) error {
			return r.ClusterAddSlotsRange(ctx, clusterSlots*i/masters, clusterSlots*(i+1)/masters-1).Err()
		})
		if err != nil {
			return err
		}
	}
	for _, s := range c.servers { // each server learns of the others from the first
		err := awaitRedis(ctx, s, func(r *redis.Client) (bool, error) {
			nodes, err := r.ClusterNodes(ctx).Result()
			return strings.Count(nodes, " connected") == len(c.servers), err
		})
		if err != nil {
			return err
		}
	}
	for i, s := range c.servers[masters:] {
		err := onRedis(s, func(r *redis.Client) error {
			return r.ClusterReplicate(ctx, c.ids[c.servers[i]]).Err()
		})
		if err != nil {
			return err
		}
	}
	return c.AwaitReplicas(ctx)
}

// startNode starts the server with the index i, and makes it join the first server's Cluster.
func (c *RedisCluster) startNode(ctx context.Context, i int, nodeTimeout time.Duration) error {
	bus, err := ReservePort()
	if err != nil {
		return err
	}
	c.buses = append(c.buses, bus)
	settings := []string{
		"cluster-enabled yes", "cluster-port " + strconv.Itoa(bus.Number()),
		fmt.Sprintf("cluster-node-timeout %d", nodeTimeout.Milliseconds()),
		"cluster-allow-replica-migration no", "cluster-require-full-coverage no",
	}
	if c.certs != nil {
		settings = append(settings, "tls-cluster yes")
	}
	if err := c.start(ctx, settings...); err != nil {
		return err
	}
	return onRedis(c.servers[i], func(r *redis.Client) error {
		if c.ids[c.servers[i]], err = r.ClusterMyID(ctx).Result(); err != nil {
			return err
		}
		if err := r.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil || i == 0 {
			return err
		}
		return r.Do(ctx, "CLUSTER", "MEET", host, c.servers[0].Redis.Port(), c.buses[0].Number()).Err()
	})
}

// URL returns the URL of the Cluster: redis+cluster://:PASSWORD@HOST:PORT,HOST:PORT, with rediss
// for TLS.
func (c *RedisCluster) URL() string {
	var hosts []string
	for _, s := range c.servers {
		hosts = append(hosts, address(s.Redis.Port()))
	}
	return c.scheme("cluster") + ":" + c.password + "@" + strings.Join(hosts, ",")
}

// Master returns the master of the key's slot, as one of the running servers sees it.
func (c *RedisCluster) Master(ctx context.Context, key string) (*Servers, error) {
	slot, err := c.slot(ctx, key)
	if err != nil {
		return nil, err
	}
	return c.owner(ctx, slot, nil)
}

// Replica returns the running replica of a master.
func (c *RedisCluster) Replica(ctx context.Context, master *Servers) (*Servers, error) {
	for _, s := range c.servers {
		if s == master || s.Redis.PID() == 0 {
			continue
		}
		var port string
		err := onRedis(s, func(r *redis.Client) (err error) {
			port, err = replicationField(ctx, r, "master_port")
			return err
		})
		if err == nil && port == strconv.Itoa(master.Redis.Port()) {
			return s, nil
		}
	}
	return nil, errors.New("the master has no replica")
}

// slot returns the number of the slot that holds a key.
func (c *RedisCluster) slot(ctx context.Context, key string) (slot int, err error) {
	n, err := c.ask(nil, func(r *redis.Client) (any, error) { return r.ClusterKeySlot(ctx, key).Result() })
	if value, ok := n.(int64); ok {
		slot = int(value)
	}
	return slot, err
}

// ask calls do with clients of the running servers in turn until a call succeeds, and returns its
// answer. It skips one server, the parameter except; nil skips none.
func (c *RedisCluster) ask(except *Servers, do func(*redis.Client) (any, error)) (any, error) {
	var answer any
	err := errors.New("no server of the Cluster runs")
	for _, s := range c.servers {
		if s == except || s.Redis.PID() == 0 {
			continue
		}
		err = onRedis(s, func(r *redis.Client) (err error) {
			answer, err = do(r)
			return err
		})
		if err == nil {
			return answer, nil
		}
	}
	return nil, err
}

// owner returns the master of a slot, as a running server other than except sees it. except may be
// nil.
func (c *RedisCluster) owner(ctx context.Context, slot int, except *Servers) (*Servers, error) {
	answer, err := c.ask(except, func(r *redis.Client) (any, error) { return r.ClusterShards(ctx).Result() })
	if err != nil {
		return nil, err
	}
	shards, _ := answer.([]redis.ClusterShard)
	for _, shard := range shards {
		owns := func(r redis.SlotRange) bool { return r.Start <= int64(slot) && int64(slot) <= r.End }
		if !slices.ContainsFunc(shard.Slots, owns) {
			continue
		}
		for _, node := range shard.Nodes { // a master that failed stays in its shard
			if node.Role == "master" && node.Health == "online" {
				return c.byID(node.ID)
			}
		}
	}
	return nil, fmt.Errorf("slot %d has no master", slot)
}

// byID returns the server with the node id.
func (c *RedisCluster) byID(id string) (*Servers, error) {
	for s, of := range c.ids {
		if of == id {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no server has the id %s", id)
}

// AwaitFailover waits until a server other than old is the master of the key's slot, and returns
// that server.
func (c *RedisCluster) AwaitFailover(ctx context.Context, key string, old *Servers) (*Servers, error) {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	slot, err := c.slot(ctx, key)
	if err != nil {
		return nil, err
	}
	for {
		master, err := c.owner(ctx, slot, old)
		if err == nil && master != old {
			return master, nil
		}
		if ended := pause(ctx, replicaPoll); ended != nil {
			return nil, fmt.Errorf("no replica is promoted: %w", errors.Join(ended, err))
		}
	}
}

// AwaitReplicas waits until all servers agree on the masters, and each master has a replica that
// follows it.
func (c *RedisCluster) AwaitReplicas(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	for _, s := range c.servers {
		err := awaitRedis(ctx, s, func(r *redis.Client) (bool, error) {
			info, err := r.ClusterInfo(ctx).Result()
			nodes, errNodes := r.ClusterNodes(ctx).Result()
			healthy := strings.Contains(info, "cluster_state:ok") && !strings.Contains(nodes, "fail") &&
				strings.Count(nodes, "slave ") == len(c.servers)/2
			role, errRole := replicationField(ctx, r, "role")
			link, errLink := replicationField(ctx, r, "master_link_status")
			return healthy && (role == "master" || link == "up"), errors.Join(err, errNodes, errRole, errLink)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// MoveSlot moves the key's slot, with all keys in it, to another master. Clients may use the slot
// meanwhile.
func (c *RedisCluster) MoveSlot(ctx context.Context, key string, to *Servers) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	slot, err := c.slot(ctx, key)
	if err != nil {
		return err
	}
	from, err := c.owner(ctx, slot, nil)
	if err != nil {
		return err
	}
	set := func(s *Servers, args ...any) error {
		return onRedis(s, func(r *redis.Client) error {
			return r.Do(ctx, append([]any{"CLUSTER", "SETSLOT", slot}, args...)...).Err()
		})
	}
	if err := errors.Join(set(to, "IMPORTING", c.ids[from]), set(from, "MIGRATING", c.ids[to])); err != nil {
		return err
	}
	err = onRedis(from, func(r *redis.Client) error { return c.migrate(ctx, r, slot, to) })
	if err != nil {
		return err
	}
	return errors.Join(set(to, "NODE", c.ids[to]), set(from, "NODE", c.ids[to]))
}

// migrate moves the keys of a slot from the server of r to another, up to 100 at a time. Each move
// has a time-out of 5000 ms.
func (c *RedisCluster) migrate(ctx context.Context, r *redis.Client, slot int, to *Servers) error {
	for {
		keys, err := r.ClusterGetKeysInSlot(ctx, slot, 100).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		args := []any{"MIGRATE", host, to.Redis.Port(), "", 0, 5000, "AUTH", c.password, "KEYS"}
		for _, key := range keys {
			args = append(args, key)
		}
		if err := r.Do(ctx, args...).Err(); err != nil {
			return err
		}
	}
}

// Stop stops all servers, removes their data, and releases their ports.
func (c *RedisCluster) Stop(ctx context.Context) error {
	errs := []error{c.redisGroup.Stop(ctx)}
	for _, bus := range c.buses {
		errs = append(errs, bus.Close())
	}
	return errors.Join(errs...)
}
