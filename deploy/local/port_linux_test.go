package local

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// outgoing connects from the given local port, like an outgoing connection that the system assigned
// this port.
func outgoing(t *testing.T, port int) error {
	t.Helper()
	ln, err := net.Listen("tcp", address(0))
	must(t, err)
	defer ln.Close()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host), Port: port}}).
		Dial("tcp", ln.Addr().String())
	if err == nil {
		conn.Close()
	}
	return err
}

// holdEphemeral reserves a port of the ephemeral range, which the system also assigns to other
// sockets.
func holdEphemeral(t *testing.T) *Port {
	t.Helper()
	for {
		ln, err := net.Listen("tcp", address(0))
		must(t, err)
		number := ln.Addr().(*net.TCPAddr).Port
		must(t, ln.Close())
		hold, err := holdPort(number, true)
		if err == nil {
			return &Port{number, hold}
		}
		if !errors.Is(err, syscall.EADDRINUSE) { // the system has assigned it again
			t.Fatal(err)
		}
	}
}

// A reserved port stays reserved while listeners and connections come and go, and refuses
// connections meanwhile.
func TestReservedPortStaysReserved(t *testing.T) {
	t.Parallel()
	port := holdEphemeral(t)
	number := port.Number()
	requireReserved := func() {
		t.Helper()
		if _, err := net.Dial("tcp", port.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial: %v", err)
		}
		if err := outgoing(t, number); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("an outgoing connection: %v", err)
		}
		if _, err := holdPort(number, true); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("another reservation: %v", err)
		}
	}
	for range 3 {
		requireReserved()
		ln, err := net.Listen("tcp", port.Address())
		must(t, err)
		conn, err := net.Dial("tcp", port.Address())
		must(t, err)
		served, err := ln.Accept()
		must(t, err)
		must(t, served.Close()) // closed first, so that TIME_WAIT is on the reserved port
		must(t, ln.Close())
		must(t, conn.Close())
	}
	requireReserved()
	must(t, port.Close())
	again, err := reserveSaved(number) // while connections linger on it
	must(t, err)
	port = again
	requireReserved()
	must(t, port.Close())
}

// A stopped server keeps its port until Servers.Stop releases it.
func TestStoppedServerKeepsItsPort(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: openDir(t), Ephemeral: true})
	for _, server := range []*Server{s.Postgres, s.Redis} {
		must(t, server.Stop(t.Context(), Fast))
		if err := outgoing(t, server.Port()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("an outgoing connection occupies the port of %s: %v", server.program.name(), err)
		}
		must(t, server.Start(t.Context()))
	}
	stop(t, s)
	for _, server := range []*Server{s.Postgres, s.Redis} {
		again, err := reserveSaved(server.Port())
		must(t, err)
		must(t, again.Close())
	}
}
