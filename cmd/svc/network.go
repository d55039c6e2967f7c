package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// errNoNetwork is the error of a listener whose links would lead nowhere.
var errNoNetwork = errors.New("SVC_LISTEN is every address of this machine, and the machine is in no network: " +
	"set SVC_PUBLIC_BASE_URL to a URL that leads to it")

// reachableAddress returns a listener's address for links. For a listener on every address, that is
// the machine's own address. own returns it, and false if the machine is in no network.
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

// networkAddress returns the machine's IPv4 address in its network, at which a phone in the same
// Wi-Fi finds it. It returns false if the machine is in no network.
func networkAddress() (netip.Addr, bool) {
	// The dial of UDP chooses a route and sends nothing.
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "udp4", "192.0.2.1:9")
	if err != nil {
		return netip.Addr{}, false
	}
	defer func() { _ = conn.Close() }()
	at, err := netip.ParseAddrPort(conn.LocalAddr().String())
	return at.Addr(), err == nil && !at.Addr().IsLoopback()
}
