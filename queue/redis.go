package queue

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"partnerbilling/models"
	"partnerbilling/models/logs"
	"partnerbilling/models/postgres"
)

const (
	// dialTimeout bounds an attempt to connect, and commandTimeout the wait for an answer. retries
	// is how often the client repeats a command. Together these three bound the time of each
	// command, even if its context has no deadline.
	dialTimeout    = time.Second
	commandTimeout = 2 * time.Second
	retries        = 2
	// connMaxAge is the age at which a connection is replaced, plus or minus connAgeJitter. The
	// jitter keeps the processes of a fleet from reconnecting at the same time.
	connMaxAge    = 30 * time.Minute
	connAgeJitter = 5 * time.Minute
	// clusterReload is the age at which a client reads the layout of a Cluster again.
	clusterReload = time.Second
	// minRedirects is the number of redirections that every command may follow in a Cluster, such
	// as after the move of a slot.
	minRedirects = 2
)

// ConnectURL returns a client for the Redis at the URL; see [ParseRedis] for its forms. The TLS
// settings are the defaults. The client connects with its first command.
func ConnectURL(url string) (redis.UniversalClient, error) {
	r, err := ParseRedis(url, nil)
	if err != nil {
		return nil, err
	}
	return r.Connect(), nil
}

// limits are the bounds of a client's commands.
type limits struct {
	command time.Duration // the wait for an answer
	retries int           // -1: none
}

// Connect returns a new client, for all parts of a process to share. The client connects with its
// first command.
func (r Redis) Connect() redis.UniversalClient { return r.client(limits{commandTimeout, retries}) }

// ConnectBriefly returns a client that waits at most timeout for each answer, and does not retry.
// The time to connect and, in a Cluster, to follow redirections comes on top.
func (r Redis) ConnectBriefly(timeout time.Duration) redis.UniversalClient {
	return r.client(limits{timeout, -1})
}

// MakeRedisClient implements asynq.RedisConnOpt. With it, asynqmon makes clients of its own, and
// closes them.
func (r Redis) MakeRedisClient() any { return r.Connect() }

// client returns a new client for the kind of the deployment.
func (r Redis) client(l limits) redis.UniversalClient {
	dial := dialer(*r.tls())
	switch {
	case r.sentinel != nil:
		return r.sentinelClient(l, dial)
	case r.cluster != nil:
		return r.clusterClient(l, dial)
	}
	o := *r.single
	o.ContextTimeoutEnabled, o.MaintNotificationsConfig, o.DisableIdentity = true, noMaintNotifications(), true
	if o.Network != "unix" {
		o.Dialer = dial
	}
	o.DialTimeout, o.DialerRetries = dialTimeout, 1
	o.ReadTimeout, o.WriteTimeout = l.command, l.command
	o.MaxRetries = l.retries
	o.ConnMaxLifetime, o.ConnMaxLifetimeJitter = connMaxAge, connAgeJitter
	return redis.NewClient(&o)
}

// sentinelClient returns a client that asks the Sentinels for the master before it dials the
// master. If a Sentinel does not answer, two command time-outs pass before the library asks
// another. The dial time-out includes them. Retries would multiply that time, so there are none.
func (r Redis) sentinelClient(l limits, dial dialFunc) redis.UniversalClient {
	o := *r.sentinel
	o.ContextTimeoutEnabled, o.DisableIdentity = true, true
	o.Dialer = dial
	o.DialTimeout, o.DialerRetries = 2*l.command+2*dialTimeout, 1
	o.ReadTimeout, o.WriteTimeout = l.command, l.command
	o.MaxRetries = -1
	o.ConnMaxLifetime, o.ConnMaxLifetimeJitter = connMaxAge, connAgeJitter
	return redis.NewFailoverClient(&o)
}

// clusterClient returns a client of all masters of a Cluster. Without frequent reloads of the
// layout, it would keep asking a dead master after the promotion of its replica.
func (r Redis) clusterClient(l limits, dial dialFunc) redis.UniversalClient {
	o := *r.cluster
	o.ContextTimeoutEnabled, o.MaintNotificationsConfig, o.DisableIdentity = true, noMaintNotifications(), true
	o.Dialer = dial
	o.DialTimeout, o.DialerRetries = dialTimeout, 1
	o.ReadTimeout, o.WriteTimeout = l.command, l.command
	o.MaxRedirects = max(l.retries, minRedirects)
	o.ClusterStateReloadInterval = clusterReload
	o.ConnMaxLifetime, o.ConnMaxLifetimeJitter = connMaxAge, connAgeJitter
	return redis.NewClusterClient(&o)
}

// noMaintNotifications turns off the notifications about maintenance that some hosted servers send.
func noMaintNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// dialer returns the dial function of postgres.NewDialer, with TLS unless tlsConfig is nil.
func dialer(tlsConfig *tls.Config) dialFunc {
	plain := postgres.NewDialer(dialTimeout)
	if tlsConfig == nil {
		return plain.DialContext
	}
	return (&tls.Dialer{NetDialer: plain, Config: tlsConfig}).DialContext
}

// CheckRedis returns an error if a queue's Redis does not answer, or if a master may evict keys
// when it runs short of memory. A server that hides its policy, as some hosted servers do, passes.
func CheckRedis(ctx context.Context, client redis.UniversalClient) error {
	if err := PingRedis(client)(ctx); err != nil {
		return err
	}
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return checkPolicy(ctx, client)
	}
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		if err := checkPolicy(ctx, master); err != nil {
			return fmt.Errorf("%w: %s", err, master.Options().Addr)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEvicts) {
		return fmt.Errorf("queue: a master of the Redis Cluster does not answer: %w", err)
	}
	return err
}

// errEvicts reports a server that may evict tasks when it runs short of memory.
var errEvicts = errors.New("queue: Redis may evict tasks")

// checkPolicy returns errEvicts if the server may evict keys.
func checkPolicy(ctx context.Context, server redis.Cmdable) error {
	info, err := server.Info(ctx, "memory").Result()
	if isRedisReply(err) {
		return nil // INFO is sometimes forbidden
	}
	if err != nil {
		return logs.OfRedis(err)
	}
	if policy := infoField(info, "maxmemory_policy"); policy != "" && policy != "noeviction" {
		return fmt.Errorf("%w: its maxmemory-policy is %q and must be noeviction", errEvicts, policy)
	}
	return nil
}

// isRedisReply reports whether an error is the answer of a server.
func isRedisReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// infoField returns the value of a field in an answer to INFO, or "" if the answer lacks it.
func infoField(info, field string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// PingRedis returns a readiness check that fails if the Redis of any queue does not answer.
func PingRedis(client redis.UniversalClient) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, q := range models.Queues {
				pipe.Exists(ctx, markerKey(q))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("queue: Redis does not answer: %w", logs.OfRedis(err))
		}
		return nil
	}
}

// masterOf returns the server that holds key, for commands about it that name no key themselves.
func masterOf(ctx context.Context, client redis.UniversalClient, key string) (redis.Cmdable, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return client, nil
	}
	master, err := cluster.MasterForKey(ctx, key)
	if err != nil { // a nil *redis.Client is not a nil interface
		return nil, err
	}
	return master, nil
}

// LogRedis sends the log lines of the Redis client library to log, at level debug, for the whole
// process. Most lines report failed connections, which the callers report as well.
func LogRedis(log *slog.Logger) { redis.SetLogger(redisLog{log}) }

// redisLog is the logger of the Redis client library that LogRedis sets.
type redisLog struct{ log *slog.Logger }

// Printf implements the logger interface of the Redis client library.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, v...))
}
