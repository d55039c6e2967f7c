package postgres_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"syscall"
	"testing"
	"time"

	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// blackHole returns an address that swallows packets: the queue of its listener is full.
func blackHole(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(bound.(*syscall.SockaddrInet4).Port))
	for range 10 {
		conn, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the listener's queue does not fill")
	return ""
}

// A first host that swallows packets makes no process unready: the second host serves the first
// check within the two seconds of a readiness check, and later connections ask that host first.
func TestFirstHostSwallowsPackets(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(modelstest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	u.Host = blackHole(t) + "," + u.Host
	db := open(t, postgres.Config{DSN: u.String(), MaxConns: 4})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := db.Ping(ctx); err != nil {
		t.Fatalf("the first check: %v", err)
	}
	db.Reconnect()
	began := time.Now()
	if err := db.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 800*time.Millisecond {
		t.Errorf("the second connection asks the first host again: %s", took)
	}
}

// If every host swallows packets, a check fails at its deadline.
func TestAllHostsSwallowPackets(t *testing.T) {
	t.Parallel()
	db := open(t,
		postgres.Config{DSN: "postgres://svc:x@" + blackHole(t) + "," + blackHole(t) + "/svc?sslmode=disable"})
	began := time.Now()
	if err := db.Ping(t.Context()); !errors.Is(err, postgres.ErrUnavailable) {
		t.Error(err)
	}
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("the failure took %s", took)
	}
}
