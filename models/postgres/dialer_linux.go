package postgres

import (
	"errors"
	"strings"
	"syscall"
)

// tcpUserTimeout is the socket option TCP_USER_TIMEOUT of linux/tcp.h. Its value is in
// milliseconds.
const tcpUserTimeout = 0x12

// controlSocket sets TCP_USER_TIMEOUT to peerTimeout on a TCP socket before it connects: the kernel
// ends a connection whose sent data stays unacknowledged for so long.
func controlSocket(network, _ string, raw syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var set error
	err := raw.Control(func(fd uintptr) {
		set = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(peerTimeout.Milliseconds()))
	})
	return errors.Join(err, set)
}
