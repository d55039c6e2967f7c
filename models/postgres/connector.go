package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"partnerbilling/models/coalesce"
)

const (
	// connectTimeout bounds one connection attempt to one address, from dialling to the first
	// check.
	connectTimeout = 3 * time.Second
	// hedgeAfter is how long a host may take to answer before the next host of the URL is tried as
	// well.
	hedgeAfter = time.Second
	// failFastFor is the time after a timed-out connection attempt in which further attempts fail
	// at once. database/sql dials for waiting calls one after another: otherwise, each call would
	// wait for the timeouts of its predecessors.
	failFastFor = 500 * time.Millisecond
	// checkTimeout bounds the check of a connection.
	checkTimeout = 2 * time.Second
	// The pool checks a connection before reuse if it was idle for checkAfterIdle, or if its last
	// check is checkEvery ago.
	checkAfterIdle = time.Second
	checkEvery     = 30 * time.Second
	// connMaxIdle is how long the pool keeps an unused connection.
	connMaxIdle = 5 * time.Minute
)

var (
	// errReadOnly refuses a server that accepts no writes: a standby, or a primary during demotion.
	errReadOnly = errors.New("the server is read-only")
	// errNotStandby refuses a server that is not a standby, for a replica.
	errNotStandby = errors.New("the server is not a standby")
	// ErrNotDurable reports settings of a server or role with which a crash may lose commits.
	ErrNotDurable = errors.New("postgres: commits are not durable")
)

// connector opens the pool's connections and decides which of them to reuse. It implements
// driver.Connector.
//
// Every connection leads to a server that accepts writes, as with target_session_attrs=read-write.
// The connections of a replica lead to a standby instead. If commits must be durable, every
// connection leads to a server that flushes them.
//
// One query checks this on a new connection, and before reuse if the connection was idle or its
// last check is old. A transaction pays no extra round trip. The query sets nothing, so it also
// works behind a pooler, where a SET can reach another session. Statements that may be lost set
// synchronous_commit = off for their own transaction only.
//
// With several hosts in the URL, a connection uses the first host that qualifies, starting with the
// host of the last connection. A host that does not answer delays the connection by hedgeAfter.
type connector struct {
	hosts     []driver.Connector // in the URL's order
	preferred atomic.Int32       // index of the host that took the last connection
	durable   atomic.Bool        // refuse sessions with commits that are not flushed
	standby   bool               // connect to standbys, for a replica
	// generation counts the events that invalidate every open connection. Connections of an earlier
	// generation are not reused.
	generation atomic.Int64
	failed     atomic.Pointer[failedAttempt]    // the last one; nil: none since a success
	probes     coalesce.Coalescer[uint32, bool] // see isAbandoned
	now        func() time.Time
	life       context.Context    // of connection attempts, which may outlive their callers
	end        context.CancelFunc // ends life when the pool closes
}

// failedAttempt is a connection attempt that timed out.
type failedAttempt struct {
	at  time.Time
	err error
}

// pooledConn is the connector's record of a connection: its generation, and the times of its last
// use and last check.
type pooledConn struct {
	generation      int64
	usedAt, checked time.Time
}

// retirableConn is a connection that the pool drops on its return if the connection has been
// retired. Otherwise, the pool would pass the connection on to a waiting call, which would fail.
type retirableConn struct {
	*driverConn
	connector *connector
}

// driverConn gives the embedded field of retirableConn a name that does not hide the method Conn.
type driverConn = stdlib.Conn

// IsValid implements driver.Validator, which the pool asks when a connection returns.
func (c *retirableConn) IsValid() bool { return c.connector.isCurrent(c.Conn()) }

// pooledConnKey is the key of the pooledConn in the driver's data of a connection.
const pooledConnKey = "partnerbilling"

// newConnector prepares connections from conf. statementDeadline bounds each statement on the
// client's side.
func newConnector(conf *pgx.ConnConfig, pooled bool, statementDeadline time.Duration) *connector {
	monotonic := time.Now //nolint:forbidigo // measures the age of connections only
	c := &connector{now: monotonic}
	c.life, c.end = context.WithCancel(context.WithValue(context.Background(), attemptKey{}, true))
	conf.ConnectTimeout = connectTimeout
	conf.DialFunc = NewDialer(connectTimeout).DialContext
	if pooled {
		conf.DialFunc = withoutCancelRequests(conf.DialFunc)
	}
	conf.ValidateConnect = c.admit
	conf.OnPgError = c.onError
	conf.Tracer = &statementLimit{limit: statementDeadline, condemn: c.condemn, isAbandoned: c.isAbandoned}
	c.probes.Call = c.probe
	for _, host := range splitHosts(conf) {
		c.hosts = append(c.hosts, stdlib.GetConnector(*host,
			// No pings: mayReuse checks connections instead.
			stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool { return false }),
			stdlib.OptionResetSession(c.mayReuse)))
	}
	return c
}

// attemptKey marks the context of connection attempts.
type attemptKey struct{}

// withoutCancelRequests returns a function that dials for connection attempts only. The driver also
// dials to cancel the statement of a connection that it gives up. Such cancel requests crash
// PgBouncer before 1.21. Without them, the statement ends at its timeout.
func withoutCancelRequests(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if ctx.Value(attemptKey{}) == nil {
			return nil, errors.New("postgres: no cancel requests through a pooler")
		}
		return dial(ctx, network, address)
	}
}

// splitHosts returns one configuration for each host of a URL. Attempts with and without TLS at one
// host stay together.
func splitHosts(conf *pgx.ConnConfig) []*pgx.ConnConfig {
	attempts := attemptsOf(conf)
	var hosts []*pgx.ConnConfig
	for first, end := 0, 0; first < len(attempts); first = end {
		for end < len(attempts) && attempts[end].Host == attempts[first].Host &&
			attempts[end].Port == attempts[first].Port {
			end++
		}
		host := conf.Copy()
		// The driver finds a client's certificate only by the TLS settings of the same
		// configuration. They must therefore be those of host, not of conf.
		own := attemptsOf(host)[first:end]
		host.Host, host.Port, host.TLSConfig, host.Fallbacks = own[0].Host, own[0].Port, own[0].TLSConfig, own[1:]
		hosts = append(hosts, host)
	}
	return hosts
}

// attemptsOf returns the attempts of a configuration, in the order in which the driver makes them.
func attemptsOf(conf *pgx.ConnConfig) []*pgconn.FallbackConfig {
	first := &pgconn.FallbackConfig{Host: conf.Host, Port: conf.Port, TLSConfig: conf.TLSConfig}
	return append([]*pgconn.FallbackConfig{first}, conf.Fallbacks...)
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return c.hosts[0].Driver() }

// Close implements io.Closer. The pool calls it at its own end; attempts under way end.
func (c *connector) Close() error {
	c.end()
	return nil
}

// Connect implements driver.Connector. An attempt outlives its caller: otherwise callers with short
// deadlines would never get past a host that does not answer.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if failed := c.failed.Load(); failed != nil && c.now().Sub(failed.at) < failFastFor {
		return nil, fmt.Errorf("%w: a connection attempt failed moments ago: %w", ErrUnavailable, failed.err)
	}
	type attempt struct {
		conn driver.Conn
		err  error
	}
	made := make(chan attempt)
	go func() {
		conn, err := c.connectAny()
		select {
		case made <- attempt{conn, err}:
		case <-ctx.Done():
			if conn != nil {
				_ = conn.Close()
			}
		}
	}()
	select {
	case a := <-made:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hostAttempt is the result of an attempt to connect to one host.
type hostAttempt struct {
	host int
	conn driver.Conn
	err  error
}

// connectAny tries the hosts in turn, the preferred one first. It tries the next host when an
// attempt fails, and whenever hedgeAfter has passed: a host that swallows packets delays a
// connection by no more than that. The first host that qualifies wins.
func (c *connector) connectAny() (driver.Conn, error) {
	began := c.now()
	life, lose := context.WithCancel(c.life)
	made := make(chan hostAttempt)
	first, started, ended := int(c.preferred.Load()), 0, 0
	next := func() {
		if started < len(c.hosts) {
			go c.connectTo(life, (first+started)%len(c.hosts), made)
			started++
		}
	}
	hedge := time.NewTicker(hedgeAfter)
	defer hedge.Stop()
	var errs []error
	for next(); ended < started; {
		select {
		case <-hedge.C:
			next()
		case a := <-made:
			if ended++; a.err == nil {
				lose()
				go closeLosers(made, started-ended)
				c.preferred.Store(int32(a.host)) //nolint:gosec // a URL has few hosts
				c.failed.Store(nil)
				conn := a.conn.(*driverConn) //nolint:forcetypeassert // hosts are stdlib connectors
				return &retirableConn{conn, c}, nil
			}
			errs = append(errs, a.err)
			next()
		}
	}
	lose()
	err := errors.Join(errs...)
	if c.now().Sub(began) >= connectTimeout {
		c.failed.Store(&failedAttempt{at: c.now(), err: err})
	}
	return nil, err
}

// leaveHost retires every connection. The next connection begins with the host after the preferred
// one.
func (c *connector) leaveHost() {
	if host := c.preferred.Load(); len(c.hosts) > 1 {
		c.preferred.CompareAndSwap(host, (host+1)%int32(len(c.hosts))) //nolint:gosec // a URL has few hosts
	}
	c.condemn()
}

// connectTo makes an attempt to connect to one host and sends its result to made.
func (c *connector) connectTo(ctx context.Context, host int, made chan<- hostAttempt) {
	conn, err := c.hosts[host].Connect(ctx)
	made <- hostAttempt{host, conn, err}
}

// closeLosers receives the results of n attempts that another host has overtaken.
func closeLosers(made <-chan hostAttempt, n int) {
	for range n {
		if a := <-made; a.err == nil {
			_ = a.conn.Close()
		}
	}
}

// admit checks a new connection and makes its record. The driver drops the connection after an
// error.
func (c *connector) admit(ctx context.Context, conn *pgconn.PgConn) error {
	state := &pooledConn{generation: c.generation.Load(), usedAt: c.now(), checked: c.now()}
	if err := c.check(ctx, conn); err != nil {
		return err
	}
	conn.CustomData()[pooledConnKey] = state
	return nil
}

// mayReuse returns nil if a pooled connection may be reused. driver.ErrBadConn makes the pool drop
// the connection.
func (c *connector) mayReuse(ctx context.Context, conn *pgx.Conn) error {
	if !c.isCurrent(conn) {
		return driver.ErrBadConn
	}
	state, now := stateOf(conn), c.now()
	idle := now.Sub(state.usedAt)
	state.usedAt = now
	if idle < checkAfterIdle && now.Sub(state.checked) < checkEvery {
		return nil
	}
	state.checked = now
	if err := c.recheck(ctx, conn.PgConn()); err != nil {
		return driver.ErrBadConn
	}
	return nil
}

// isCurrent reports whether a connection is open and of the current generation.
func (c *connector) isCurrent(conn *pgx.Conn) bool {
	return !conn.IsClosed() && stateOf(conn).generation == c.generation.Load()
}

// stateOf returns the connector's record of a connection, which admit has made.
func stateOf(conn *pgx.Conn) *pooledConn {
	return conn.PgConn().CustomData()[pooledConnKey].(*pooledConn) //nolint:forcetypeassert // nothing else writes it
}

// recheck checks an open connection. If the server no longer qualifies, recheck retires all
// connections.
func (c *connector) recheck(ctx context.Context, conn *pgconn.PgConn) error {
	err := c.check(ctx, conn)
	if isUnfit(err) {
		c.condemn()
	}
	return err
}

// isUnfit reports whether err, of check, says that the server does not qualify. Other errors say
// that it does not answer.
func isUnfit(err error) bool {
	return errors.Is(err, errReadOnly) || errors.Is(err, errNotStandby) || errors.Is(err, ErrNotDurable)
}

// check asks the server whether it qualifies. It returns errReadOnly, errNotStandby or
// ErrNotDurable if not.
func (c *connector) check(ctx context.Context, conn *pgconn.PgConn) error {
	const query = `SELECT current_setting('transaction_read_only'), current_setting('synchronous_commit'), session_user,
		pg_is_in_recovery()`
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	results, err := conn.Exec(ctx, query).ReadAll()
	if err != nil {
		return err
	}
	row := results[0].Rows[0]
	readOnly, commit, role, inRecovery := string(row[0]), string(row[1]), string(row[2]), string(row[3])
	switch {
	case c.standby && inRecovery != "t":
		return errNotStandby
	case c.standby:
		return nil
	case readOnly == "on":
		return errReadOnly
	case c.durable.Load() && !isDurable("synchronous_commit", commit):
		return fmt.Errorf("%w: synchronous_commit is %s for role %s", ErrNotDurable, commit, role)
	default:
		return nil
	}
}

// condemn retires every open connection. Statements in progress may finish.
func (c *connector) condemn() { c.generation.Add(1) }

// onError reports whether a connection stays open after an error. It closes the connection after a
// fatal error, as the driver does by default. If the server has become read-only, onError also
// retires all other connections.
func (c *connector) onError(_ *pgconn.PgConn, err *pgconn.PgError) bool {
	if isReadOnlyCode(err.Code) && !c.standby {
		c.condemn()
		return false
	}
	return !isFatal(err)
}

// isFatal reports whether the server ends the session with err.
func isFatal(err *pgconn.PgError) bool {
	severity := err.SeverityUnlocalized
	if severity == "" { // a server before 9.6, or a pooler
		severity = err.Severity
	}
	return strings.EqualFold(severity, "FATAL") || strings.EqualFold(severity, "PANIC")
}
