package modelstest

import (
	"syscall"
	"testing"
)

// ProveSocket fails the test unless the kernel detects a dead peer of the TCP socket fd within 15
// seconds. On an idle connection, keepalive probes must detect it; on a busy one, the limit on the
// wait for an acknowledgement.
func ProveSocket(t testing.TB, fd int) {
	t.Helper()
	option := func(level, name int) int {
		value, err := syscall.GetsockoptInt(fd, level, name)
		if err != nil {
			t.Errorf("modelstest: socket option %d: %v", name, err)
		}
		return value
	}
	const tcpUserTimeout = 0x12 // linux/tcp.h
	if ms := option(syscall.IPPROTO_TCP, tcpUserTimeout); ms < 1000 || ms > 15_000 {
		t.Errorf("TCP_USER_TIMEOUT is %d ms", ms)
	}
	idle, interval, probes := option(syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE),
		option(syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL),
		option(syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT)
	if option(syscall.SOL_SOCKET, syscall.SO_KEEPALIVE) == 0 || idle+interval*probes > 15 {
		t.Errorf("a dead peer of an idle connection is noticed after %d s and %d times %d s", idle, probes, interval)
	}
}
