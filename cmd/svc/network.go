package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// errNoNetwork says that no address of the machine can be part of a link.
var errNoNetwork = errors.New("SVC_LISTEN is every address of this machine, and the machine is in no network: " +
	"set SVC_PUBLIC_BASE_URL to a URL that leads to it")

// reachableAddress returns the host and port of a listener for links. For a listener on every
// address, such as 0.0.0.0:8080, it takes the host from own, the machine's address in its network.
// own returns false if the machine is in no network.
func reachableAddress(listener string, own func() (netip.Addr, bool)) (string, error) {
	at, err := netip.ParseAddrPort(listener)
	if err != nil {
		return "", fmt.Errorf("SVC_LISTEN: %w", err)
	}
	if !at.Addr().IsUnspecified() {
		return listener, nil
	}
	address, ok := own()
	if !ok {
		return "", errNoNetwork
	}
	return netip.AddrPortFrom(address, at.Port()).String(), nil
}

// networkAddress returns the machine's IPv4 address in its network. A phone in the same Wi-Fi
// reaches the machine at that address. It returns false if the machine is in no network.
func networkAddress() (netip.Addr, bool) {
	// Dialling UDP chooses a route, and so a local address, and sends nothing. 192.0.2.1 is an
	// address for documentation.
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "udp4", "192.0.2.1:9")
	if err != nil {
		return netip.Addr{}, false
	}
	defer func() { _ = conn.Close() }()
	at, err := netip.ParseAddrPort(conn.LocalAddr().String())
	return at.Addr(), err == nil && !at.Addr().IsLoopback()
}
