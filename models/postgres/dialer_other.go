//go:build !linux

package postgres

import "syscall"

// controlSocket does nothing: the system lacks TCP_USER_TIMEOUT. Keepalive probes and deadlines
// still apply.
func controlSocket(string, string, syscall.RawConn) error { return nil }
