package postgres

import (
	"net"
	"time"
)

const (
	// peerTimeout is how long sent data may stay unacknowledged before the kernel ends a
	// connection.
	peerTimeout = 10 * time.Second
	// keepAliveIdle is the idle time before the first keepalive probe, and keepAliveInterval the
	// time between probes. After keepAliveProbes without an answer the kernel ends the connection.
	// Together this takes about peerTimeout.
	keepAliveIdle     = 5 * time.Second
	keepAliveInterval = 2 * time.Second
	keepAliveProbes   = 3
)

// NewDialer returns the dialer of every connection to Postgres and Redis. The kernel ends a
// connection whose peer acknowledges nothing: an idle one by keepalive probes, a busy one by
// TCP_USER_TIMEOUT where available. A peer that acknowledges but does not answer is detected by the
// deadlines of statements and commands instead. timeout bounds one dial.
func NewDialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout: timeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveProbes,
		},
		Control: controlSocket,
	}
}
