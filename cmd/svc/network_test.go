package main

import (
	"errors"
	"net/netip"
	"testing"
)

func TestReachableAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ listener, own, want string }{
		{"127.0.0.1:8080", "192.168.1.7", "127.0.0.1:8080"},
		{"0.0.0.0:8080", "192.168.1.7", "192.168.1.7:8080"},
		{"[::]:8080", "192.168.1.7", "192.168.1.7:8080"},
		{"[::1]:8080", "", "[::1]:8080"},
		{"0.0.0.0:8080", "", ""},
	} {
		own := func() (netip.Addr, bool) {
			a, err := netip.ParseAddr(c.own)
			return a, err == nil
		}
		got, err := reachableAddress(c.listener, own)
		if got != c.want || (c.want == "") != errors.Is(err, errNoNetwork) {
			t.Errorf("%s on a machine at %q: %q, %v", c.listener, c.own, got, err)
		}
	}
}
