package local

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// redisName is the name of the server and of its folder.
	redisName    = "redis"
	redisConfig  = "redis.conf"
	redisPIDFile = "redis.pid"
)

// redisServer is a Redis server with its data in a servers' folder.
type redisServer struct {
	binary    string
	account   account
	data      string
	password  string
	ephemeral bool
}

// newRedis finds the program, and creates a missing Redis data folder.
func newRedis(ctx context.Context, dir *serversDir, o Options) (*redisServer, error) {
	r := &redisServer{
		account: dir.account, data: dir.file(redisName), password: dir.state.RedisPassword, ephemeral: o.Ephemeral,
	}
	var err error
	if r.binary, err = findRedis(ctx, dir.account); err != nil {
		return nil, err
	}
	if err := dir.account.mkdir(r.data); err != nil {
		return nil, fmt.Errorf("create the Redis data folder: %w", err)
	}
	return r, nil
}

func (r *redisServer) name() string { return redisName }

// command writes the configuration file. The file holds the password, because other users can see a
// command line.
func (r *redisServer) command(port int) (*exec.Cmd, error) {
	appendOnly := "yes"
	if r.ephemeral {
		appendOnly = "no"
	}
	settings := []string{
		"bind " + host,
		"port " + strconv.Itoa(port),
		"protected-mode yes",
		"requirepass " + r.password,
		"daemonize no",
		"set-proc-title no", // stopLeftovers recognises the process by its arguments
		"dir " + strconv.Quote(r.data),
		"pidfile " + strconv.Quote(filepath.Join(r.data, redisPIDFile)),
		`logfile ""`, // the log is the server's standard output
		"maxmemory-policy noeviction",
		`save ""`, // no snapshots: the append-only file holds all data
		"appendonly " + appendOnly,
		"appendfsync everysec",
	}
	config := filepath.Join(r.data, redisConfig)
	if err := r.account.writeFile(config, strings.Join(settings, "\n")+"\n"); err != nil {
		return nil, err
	}
	return exec.Command(r.binary, config), nil
}

func (r *redisServer) signals() signals {
	s := signals{fast: syscall.SIGTERM, immediate: syscall.SIGKILL, orphaned: syscall.SIGTERM}
	if r.ephemeral {
		s.orphaned = syscall.SIGKILL
	}
	return s
}

func (r *redisServer) retryable(string) bool { return false }

func (r *redisServer) url(port int) string {
	u := url.URL{Scheme: "redis", User: url.UserPassword("", r.password), Host: address(port), Path: "/0"}
	return u.String()
}

func (r *redisServer) ping(ctx context.Context, port int) error {
	client := redis.NewClient(&redis.Options{
		Addr:                     address(port),
		Password:                 r.password,
		MaxRetries:               -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer client.Close()
	return client.Ping(ctx).Err() // Redis returns an error while it loads its data
}
