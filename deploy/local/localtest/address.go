// Package localtest gives tests addresses of this machine.
package localtest

import (
	"net"
	"testing"

	"partnerbilling/deploy/local"
)

// FreeAddress returns an address of 127.0.0.1 whose port is reserved until the test ends. It
// refuses connections until the test, or a program that the test starts, listens on it.
//
// The address of a listener that was closed is not reserved: the system may give its port to
// another process, which then answers.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := local.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })
	return port.Address()
}

// SilentAddress returns an address of 127.0.0.1 that accepts connections and never answers, until
// the test ends.
func SilentAddress(t testing.TB) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}
