package queue

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"partnerbilling/models/postgres"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// dialTimeout bounds an attempt to connect, and commandTimeout the wait for an answer. The
	// client retries a command. Together these bound each command, even if its context has no
	// deadline.
	dialTimeout    = time.Second
	commandTimeout = 2 * time.Second
	retries        = 2
	// connMaxAge is the age at which a connection is replaced, plus or minus connAgeJitter. The
	// jitter keeps a fleet from reconnecting in step.
	connMaxAge    = 30 * time.Minute
	connAgeJitter = 5 * time.Minute
)

// Connect returns the Redis client that all parts of a process share. It does not connect yet.
func Connect(url string) (*redis.Client, error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("queue: Redis URL cannot be parsed") // the parser's error quotes the password
	}
	opts.ContextTimeoutEnabled = true
	opts.Dialer = dialer(opts.TLSConfig)
	opts.DialTimeout, opts.DialerRetries = dialTimeout, 1
	opts.ReadTimeout, opts.WriteTimeout = commandTimeout, commandTimeout
	opts.MaxRetries = retries
	opts.ConnMaxLifetime, opts.ConnMaxLifetimeJitter = connMaxAge, connAgeJitter
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(opts), nil
}

// dialer returns the dial function of postgres.NewDialer, with TLS if tlsConfig is not nil.
func dialer(tlsConfig *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	plain := postgres.NewDialer(dialTimeout)
	if tlsConfig == nil {
		return plain.DialContext
	}
	return (&tls.Dialer{NetDialer: plain, Config: tlsConfig}).DialContext
}

// CheckRedis returns an error if Redis does not answer, or evicts keys when it runs short of
// memory. A server that hides its policy passes, as many hosted servers do.
func CheckRedis(ctx context.Context, client *redis.Client) error {
	if err := PingRedis(client)(ctx); err != nil {
		return err
	}
	policy, err := client.ConfigGet(ctx, "maxmemory-policy").Result()
	if err != nil {
		return nil //nolint:nilerr // CONFIG is often forbidden
	}
	if p := policy["maxmemory-policy"]; p != "" && p != "noeviction" {
		return fmt.Errorf("queue: Redis has maxmemory-policy %q, which drops tasks; it must be noeviction", p)
	}
	return nil
}

// PingRedis returns a readiness check that fails if Redis does not answer.
func PingRedis(client *redis.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := client.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("queue: Redis does not answer: %w", err)
		}
		return nil
	}
}

// LogRedis sends the log lines of the Redis client library to log, at level debug. Most report
// failed connections, which the callers report as well. It applies to the whole process.
func LogRedis(log *slog.Logger) { redis.SetLogger(redisLog{log}) }

type redisLog struct{ log *slog.Logger }

// Printf implements the logger interface of the Redis client library.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, v...))
}
