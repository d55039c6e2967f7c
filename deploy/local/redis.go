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
	// redisName is the name of the server, and of its folder.
	redisName    = "redis"
	redisConfig  = "redis.conf"
	redisPIDFile = "redis.pid"
)

// redisServer is a Redis server with its data in a place.
type redisServer struct {
	binary    string
	account   account
	data      string
	password  string
	ephemeral bool
}

// newRedis finds the program and makes the data folder.
func newRedis(ctx context.Context, p *place, o Options) (*redisServer, error) {
	r := &redisServer{account: p.account, data: p.path(redisName), password: p.state.RedisPassword, ephemeral: o.Ephemeral}
	var err error
	if r.binary, err = findRedis(ctx, p.account); err != nil {
		return nil, err
	}
	if err := p.account.mkdir(r.data); err != nil {
		return nil, fmt.Errorf("make the Redis data folder: %w", err)
	}
	return r, nil
}

func (r *redisServer) name() string { return redisName }

// command writes the configuration anew each time. The password is in there, where a command line would show
// it to everybody.
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
		"set-proc-title no", // the next start knows the process by its arguments
		"dir " + strconv.Quote(r.data),
		"pidfile " + strconv.Quote(filepath.Join(r.data, redisPIDFile)),
		`logfile ""`, // what it prints is the log
		"maxmemory-policy noeviction",
		`save ""`, // no snapshots: the append-only file has it all
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

func (r *redisServer) lingers(string) bool { return false }

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
	return client.Ping(ctx).Err() // an error while it loads its data
}
