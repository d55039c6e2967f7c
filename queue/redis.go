package queue

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"partnerbilling/models"
)

const (
	// dialTimeout bounds one attempt to connect, and commandTimeout the wait for an answer. The client tries a command
	// retries times again, so that each command of each loop ends within their sum, whatever its context says.
	dialTimeout    = time.Second
	commandTimeout = 2 * time.Second
	retries        = 2
	// connMaxAge is the age at which a connection is replaced, give or take connAgeJitter, so that a fleet does not connect
	// in step.
	connMaxAge    = 30 * time.Minute
	connAgeJitter = 5 * time.Minute
)

// Connect makes the one Redis client that everything of a process shares. It does not connect.
func Connect(url string) (*redis.Client, error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("queue: Redis URL cannot be parsed") // the parser quotes the password
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

// dialer connects as models.NewDialer does, with TLS if the URL asks for it.
func dialer(secure *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	plain := models.NewDialer(dialTimeout)
	if secure == nil {
		return plain.DialContext
	}
	return (&tls.Dialer{NetDialer: plain, Config: secure}).DialContext
}

// CheckRedis makes sure that Redis drops nothing when it runs short of memory. A server that does not say (many hosted ones
// do not) passes.
func CheckRedis(ctx context.Context, client *redis.Client) error {
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("queue: Redis does not answer: %w", err)
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

// LogRedis sends what the Redis client says of its own accord to the log: that it cannot connect, mostly, which whoever needed
// the connection says as well. It is for the whole process.
func LogRedis(log *slog.Logger) { redis.SetLogger(redisLog{log}) }

type redisLog struct{ log *slog.Logger }

// Printf implements the client's interface for loggers.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, v...))
}
