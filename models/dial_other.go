//go:build !linux

package models

import "syscall"

// controlSocket does nothing: the system has no TCP_USER_TIMEOUT. Keepalive probes and deadlines remain.
func controlSocket(string, string, syscall.RawConn) error { return nil }
