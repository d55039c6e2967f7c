// Package peer finds the address of the client that a request comes from, through trusted proxies.
package peer

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// The headers in which proxies name the addresses that a request came from.
const (
	HeaderForwarded    = "Forwarded" // RFC 7239
	HeaderForwardedFor = "X-Forwarded-For"
)

// maxHops is the maximum number of entries of a header that are followed.
const maxHops = 32

// Proxies are the address prefixes of trusted proxies. Without any, the client is the peer of the
// connection.
type Proxies []netip.Prefix

// ParseProxies parses single addresses and CIDR prefixes. A prefix must not have host bits.
func ParseProxies(texts []string) (Proxies, error) {
	proxies := make(Proxies, len(texts))
	for i, text := range texts {
		prefix, err := ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("%q is not an address or a CIDR prefix without host bits, such as 10.0.0.0/8", text)
		}
		proxies[i] = prefix
	}
	return proxies, nil
}

// ParsePrefix parses a CIDR prefix. An address without a length is the prefix of that address
// alone.
func ParsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return address.Prefix(address.BitLen())
	}
	return netip.ParsePrefix(text)
}

func (p Proxies) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(p, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

// Client returns the address of the client, from the address of the connection's peer and the
// values of the headers X-Forwarded-For and Forwarded.
//
// Client believes only trusted proxies. It begins at the peer and follows a header from right to
// left, to the first address that is not a trusted proxy. At a malformed entry, at the end of the
// header, and after maxHops, it stops at the last address reached. If both headers are present and
// lead to different addresses, a client may have forged one: Client then returns the peer.
func (p Proxies) Client(peer netip.Addr, forwardedFor, forwarded []string) netip.Addr {
	peer = plain(peer)
	if !p.trusts(peer) || len(forwardedFor)+len(forwarded) == 0 {
		return peer
	}
	hops := strings.Split(strings.Join(forwardedFor, ","), ",")
	elements := splitQuoted(strings.Join(forwarded, ","), ',')
	switch {
	case len(forwarded) == 0:
		return p.walk(peer, hops, parseHop)
	case len(forwardedFor) == 0:
		return p.walk(peer, elements, parseElement)
	}
	a, b := p.walk(peer, hops, parseHop), p.walk(peer, elements, parseElement)
	if a != b {
		return peer
	}
	return a
}

// ClientOf returns the address of the client of a request. It returns the zero Addr if the address
// of the connection's peer is unknown.
func (p Proxies) ClientOf(r *http.Request) netip.Addr {
	address, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return p.Client(address.Addr(), r.Header.Values(HeaderForwardedFor), r.Header.Values(HeaderForwarded))
}

// FromNet returns the IP address of a TCP address, and the zero Addr for any other net.Addr.
func FromNet(address net.Addr) netip.Addr {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return plain(tcp.AddrPort().Addr())
}

// plain returns the address without a zone, and an IPv4-mapped one as IPv4, so that equal addresses
// compare equal.
func plain(address netip.Addr) netip.Addr { return address.Unmap().WithZone("") }

// walk follows the entries of one header as Client describes it. parse reads an entry, and reports
// false for a malformed one.
func (p Proxies) walk(peer netip.Addr, entries []string, parse func(string) (netip.Addr, bool)) netip.Addr {
	current := peer
	for n := 0; n < min(len(entries), maxHops) && p.trusts(current); n++ {
		next, ok := parse(entries[len(entries)-1-n])
		if !ok {
			return current
		}
		current = next
	}
	return current
}

// parseHop parses an entry of X-Forwarded-For: an address, with or without a port.
func parseHop(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")); err == nil {
		return plain(address), true
	}
	withPort, err := netip.ParseAddrPort(text)
	return plain(withPort.Addr()), err == nil
}

// parseElement parses the address in the parameter "for" of an element of Forwarded. It refuses
// "unknown" and obfuscated identifiers.
func parseElement(text string) (address netip.Addr, ok bool) {
	for _, pair := range splitQuoted(text, ';') {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "for") {
			continue
		}
		if ok { // repeated
			return netip.Addr{}, false
		}
		value = strings.TrimSpace(value)
		if unquoted, quoted := strings.CutPrefix(value, `"`); quoted {
			value = strings.TrimSuffix(unquoted, `"`)
		}
		if address, ok = parseHop(value); !ok {
			return netip.Addr{}, false
		}
	}
	return address, ok
}

// splitQuoted splits a text at a separator outside quoted strings.
func splitQuoted(text string, separator byte) []string {
	var parts []string
	quoted, begin := false, 0
	for i := 0; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++ // the escaped character
		case text[i] == '"':
			quoted = !quoted
		case text[i] == separator && !quoted:
			parts, begin = append(parts, text[begin:i]), i+1
		}
	}
	return append(parts, text[begin:])
}
