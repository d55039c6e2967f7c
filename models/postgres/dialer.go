package postgres

import (
	"net"
	"time"
)

const (
	// peerTimeout is how long sent data may stay unacknowledged before the kernel ends a
	// connection.
	peerTimeout = 10 * time.Second
	// keepAliveIdle is the idle time before the first keepalive probe; keepAliveInterval separates
	// probes. With keepAliveProbes they detect a dead peer of an idle connection after about
	// peerTimeout.
	keepAliveIdle     = 5 * time.Second
	keepAliveInterval = 2 * time.Second
	keepAliveProbes   = 3
)

// NewDialer returns the dialer of every connection to Postgres and Redis. The kernel ends a
// connection whose peer acknowledges nothing: an idle one by keepalive probes, a busy one by
// TCP_USER_TIMEOUT where available. The deadlines of statements and commands detect a peer that
// acknowledges but does not answer.
func NewDialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout: timeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveProbes,
		},
		Control: controlSocket,
	}
}
