package local

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// redisServer is a Redis server, or a Sentinel, with its data in a servers' folder. It implements
// program.
type redisServer struct {
	binary    string
	account   account
	data      string
	password  string
	ephemeral bool
	role      redisRole
	certs     *Certificates
}

// redisRole is the role of a server in a Cluster or under Sentinels. The zero value is a server
// without a group.
type redisRole struct {
	password string   // of the servers of the group
	settings []string // further lines of the configuration
	sentinel bool     // the server is a Sentinel
}

// isGrouped reports whether the server belongs to a group. Such a server changes its configuration
// file itself, so a restart must keep the file.
func (r redisRole) isGrouped() bool { return r.password != "" }

// newRedis finds the program, and creates a missing Redis data folder.
func newRedis(ctx context.Context, dir *serversDir, o Options) (*redisServer, error) {
	r := &redisServer{
		account: dir.account, data: dir.file(redisName), password: dir.state.RedisPassword, ephemeral: o.Ephemeral,
		role: o.role, certs: o.Certificates,
	}
	if r.role.isGrouped() {
		r.password = r.role.password
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

// command writes the configuration file, unless the server belongs to a group and has one already.
// The password is in the file, because other users can see a command line.
func (r *redisServer) command(port int) (*exec.Cmd, error) {
	config := filepath.Join(r.data, redisConfig)
	args := []string{config}
	if r.role.sentinel {
		args = append(args, "--sentinel")
	}
	if _, err := os.Stat(config); err == nil && r.role.isGrouped() {
		return exec.Command(r.binary, args...), nil
	}
	listen, err := r.listen(port)
	if err != nil {
		return nil, err
	}
	settings := slices.Concat(listen, []string{
		"bind " + host,
		"protected-mode yes",
		"requirepass " + r.password,
		"daemonize no",
		"set-proc-title no", // stopLeftovers recognises the process by its arguments
		"dir " + strconv.Quote(r.data),
		"pidfile " + strconv.Quote(filepath.Join(r.data, redisPIDFile)),
		`logfile ""`, // the log is the server's standard output
	})
	if !r.role.sentinel {
		settings = append(settings, r.storage()...)
	}
	settings = append(settings, r.role.settings...)
	if err := r.account.writeFile(config, strings.Join(settings, "\n")+"\n"); err != nil {
		return nil, err
	}
	return exec.Command(r.binary, args...), nil
}

// listen returns the settings of the port and of TLS. With TLS, it writes the server's PEM files.
func (r *redisServer) listen(port int) ([]string, error) {
	if r.certs == nil {
		return []string{"port " + strconv.Itoa(port)}, nil
	}
	files, err := r.certs.write(r.account, r.data)
	return []string{
		"port 0", "tls-port " + strconv.Itoa(port), "tls-auth-clients yes", "tls-replication yes",
		"tls-ca-cert-file " + strconv.Quote(files.ca), "tls-cert-file " + strconv.Quote(files.cert),
		"tls-key-file " + strconv.Quote(files.key),
	}, err
}

// storage returns the settings of memory and persistence.
func (r *redisServer) storage() []string {
	appendOnly := "yes"
	if r.ephemeral {
		appendOnly = "no"
	}
	return []string{
		"maxmemory-policy noeviction",
		`save ""`, // no snapshots: the append-only file holds all data
		"appendonly " + appendOnly,
		"appendfsync everysec",
	}
}

func (r *redisServer) signals() signals {
	s := signals{fast: syscall.SIGTERM, immediate: syscall.SIGKILL, orphaned: syscall.SIGTERM}
	if r.ephemeral {
		s.orphaned = syscall.SIGKILL
	}
	return s
}

func (r *redisServer) retryable(string) bool { return false }

// url returns the redis:// or rediss:// URL of database 0, with password.
func (r *redisServer) url(port int) string {
	scheme := "redis"
	if r.certs != nil {
		scheme = "rediss"
	}
	u := url.URL{Scheme: scheme, User: url.UserPassword("", r.password), Host: address(port), Path: "/0"}
	return u.String()
}

func (r *redisServer) ping(ctx context.Context, port int) error {
	// This dial tells whether the server listens. The client library would log each failure.
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address(port))
	if err != nil {
		return err
	}
	_ = conn.Close()
	client, err := r.client(port)
	if err != nil {
		return permanentError{err}
	}
	defer client.Close()
	return client.Ping(ctx).Err() // Redis returns an error while it loads its data
}

// client returns a client of the server that does not retry.
func (r *redisServer) client(port int) (*redis.Client, error) {
	o := &redis.Options{
		Addr:                     address(port),
		Password:                 r.password,
		MaxRetries:               -1,
		DialerRetries:            1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if r.role.sentinel {
		o.Protocol = 2 // in protocol 3, SENTINEL MASTER answers with a map
	}
	if r.certs != nil {
		var err error
		if o.TLSConfig, err = r.certs.Client(); err != nil {
			return nil, err
		}
	}
	return redis.NewClient(o), nil
}
