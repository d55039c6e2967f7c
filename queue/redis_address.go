package queue

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Redis is the address of a Redis deployment: a single server, a master under Sentinel, or a
// Cluster. Exactly one field is set.
type Redis struct {
	single   *redis.Options
	sentinel *redis.FailoverOptions
	cluster  *redis.ClusterOptions
}

// The default ports.
const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

var (
	errRedisURL = errors.New("queue: Redis URL cannot be parsed; the forms are redis://USER:PASSWORD@HOST:PORT/DB, " +
		"redis+sentinel://USER:PASSWORD@SENTINEL:PORT,SENTINEL:PORT/DB?master_name=NAME and " +
		"redis+cluster://USER:PASSWORD@HOST:PORT,HOST:PORT, with rediss for TLS")
	errReplicaReads = errors.New("queue: the service reads from masters only; " +
		"remove the options that read from replicas")
)

// ParseRedis parses the URL of a Redis deployment. If secure is not nil, it replaces the default
// TLS settings, and the URL must be of TLS. Errors do not repeat the URL, because it contains
// passwords.
//
// The scheme selects the kind of the deployment: redis, redis+sentinel or redis+cluster, with
// rediss in place of redis for TLS. Several hosts are separated by commas. User and password before
// the hosts are those of Redis. The parameters sentinel_username and sentinel_password are those of
// the Sentinels. All other parameters are as the parsers of go-redis define them.
func ParseRedis(text string, secure *tls.Config) (r Redis, err error) {
	scheme, rest, _ := strings.Cut(text, "://")
	base, kind, _ := strings.Cut(scheme, "+")
	switch kind {
	case "":
		r.single, err = redis.ParseURL(text)
	case "sentinel":
		r.sentinel, err = parseSentinel(base, rest)
	case "cluster":
		r.cluster, err = parseCluster(base, rest)
	default:
		err = errRedisURL
	}
	switch {
	case errors.Is(err, errReplicaReads):
		return Redis{}, err
	case err != nil:
		return Redis{}, errRedisURL // the parser's error may quote the password
	case secure != nil && *r.tls() == nil:
		return Redis{}, errors.New("queue: TLS settings need a rediss URL")
	case secure != nil:
		*r.tls() = secure.Clone()
	}
	if t := *r.tls(); t != nil {
		t.ServerName = "" // each server is verified by the name under which it is dialled
	}
	return r, nil
}

// parseSentinel parses a URL of Sentinels. base is redis or rediss, and rest is the part of the URL
// after the scheme. go-redis treats user and password before the hosts as those of the Sentinels,
// and expects those of Redis as parameters. parseSentinel exchanges the two.
func parseSentinel(base, rest string) (*redis.FailoverOptions, error) {
	u, err := splitHosts(base, rest, sentinelPort)
	if err != nil {
		return nil, err
	}
	query := u.Query()
	user := u.User
	if u.User = nil; query.Has("sentinel_username") || query.Has("sentinel_password") {
		u.User = url.UserPassword(query.Get("sentinel_username"), query.Get("sentinel_password"))
		query.Del("sentinel_username")
		query.Del("sentinel_password")
	}
	if user != nil {
		password, _ := user.Password()
		query.Set("username", user.Username())
		query.Set("password", password)
	}
	u.RawQuery = query.Encode()
	o, err := redis.ParseFailoverURL(u.String())
	switch {
	case err != nil:
		return nil, err
	case o.MasterName == "":
		return nil, errRedisURL
	case o.ReplicaOnly || o.RouteByLatency || o.RouteRandomly:
		return nil, errReplicaReads
	}
	return o, nil
}

// parseCluster parses a URL of a Cluster. base is redis or rediss, and rest is the part of the URL
// after the scheme. A Cluster has only the database 0.
func parseCluster(base, rest string) (*redis.ClusterOptions, error) {
	u, err := splitHosts(base, rest, redisPort)
	if err != nil {
		return nil, err
	}
	if !slices.Contains([]string{"", "/", "/0"}, u.Path) {
		return nil, errRedisURL
	}
	o, err := redis.ParseClusterURL(u.String())
	switch {
	case err != nil:
		return nil, err
	case o.ReadOnly || o.RouteByLatency || o.RouteRandomly:
		return nil, errReplicaReads
	}
	return o, nil
}

// splitHosts returns the URL base://rest with its first host only. The other hosts become
// parameters named addr, as the parsers of go-redis expect them. port is the default port.
func splitHosts(base, rest, port string) (*url.URL, error) {
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	start := strings.LastIndex(rest[:end], "@") + 1
	hosts := strings.Split(rest[start:end], ",")
	for i, host := range hosts {
		parsed, err := url.Parse("//" + host)
		if err != nil || parsed.Hostname() == "" {
			return nil, errRedisURL
		}
		hosts[i] = net.JoinHostPort(parsed.Hostname(), cmp.Or(parsed.Port(), port))
	}
	u, err := url.Parse(base + "://" + rest[:start] + hosts[0] + rest[end:])
	if err != nil {
		return nil, errRedisURL
	}
	query := u.Query()
	for _, host := range hosts[1:] {
		query.Add("addr", host)
	}
	u.RawQuery = query.Encode()
	return u, nil
}

// tls returns a pointer to the TLS settings of the deployment. The settings are nil without TLS.
func (r Redis) tls() **tls.Config {
	switch {
	case r.sentinel != nil:
		return &r.sentinel.TLSConfig
	case r.cluster != nil:
		return &r.cluster.TLSConfig
	default:
		return &r.single.TLSConfig
	}
}

// IsVerified reports whether connections use a password, and TLS with verified certificates.
// Sentinels need a password too: without one, any client could make them name another master.
func (r Redis) IsVerified() bool {
	t := *r.tls()
	return t != nil && !t.InsecureSkipVerify && r.password() != "" &&
		(r.sentinel == nil || r.sentinel.SentinelPassword != "")
}

// password returns the password of Redis, not that of Sentinels.
func (r Redis) password() string {
	switch {
	case r.sentinel != nil:
		return r.sentinel.Password
	case r.cluster != nil:
		return r.cluster.Password
	default:
		return r.single.Password
	}
}

// String names the kind of the deployment and its servers, without user and password.
func (r Redis) String() string {
	switch {
	case r.sentinel != nil:
		return fmt.Sprintf("master %s under the Sentinels %s", r.sentinel.MasterName,
			strings.Join(r.sentinel.SentinelAddrs, ", "))
	case r.cluster != nil:
		return "Cluster of " + strings.Join(r.cluster.Addrs, ", ")
	default:
		return "server " + r.single.Addr
	}
}
