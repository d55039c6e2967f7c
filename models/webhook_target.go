package models

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"code.dny.dev/ssrf"
)

// ErrWebhookAddress says that an address must not be dialled.
var ErrWebhookAddress = errors.New("address not allowed")

// The faults of an endpoint's URL, besides those of every URL, worded for the partner.
var (
	errURLFragment = fmt.Errorf("%w, without a fragment", errURLForm)
	errURLPort     = errors.New("must have a port from 1 to 65535, or none")
	errURLAddress  = errors.New("must not point to a private, local or reserved address or name")
)

// WebhookTargets is the policy for endpoint addresses.
type WebhookTargets struct {
	// Sandbox allows http as well as https.
	Sandbox bool
	// Loopback allows loopback addresses and names. No other private address is ever allowed.
	Loopback bool
}

// publicOnly allows public addresses with any port.
var publicOnly = ssrf.New(ssrf.WithAnyPort())

// CheckURL checks an endpoint's URL at configuration, and returns a fault worded for the partner.
// It does not resolve names: CheckAddr checks the addresses at every dial.
func (t WebhookTargets) CheckURL(raw string) error {
	u, err := parseURL(raw, t.Sandbox)
	switch {
	case errors.Is(err, errURLForm) || strings.Contains(raw, "#"):
		return errURLFragment
	case err != nil:
		return err
	}
	port := uint16(443)
	if strings.HasSuffix(u.Host, ":") {
		return errURLPort
	}
	if text := u.Port(); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return errURLPort
		}
		port = uint16(n)
	}
	return t.checkHost(u, port)
}

// checkHost checks the host of an endpoint's URL: an address, or a name.
func (t WebhookTargets) checkHost(u *url.URL, port uint16) error {
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil {
		bracketed := strings.HasPrefix(u.Host, "[")
		if ip.Zone() != "" || bracketed != ip.Is6() {
			return errURLHost
		}
		if t.CheckAddr(netip.AddrPortFrom(ip, port)) != nil {
			return errURLAddress
		}
		return nil
	}
	switch {
	case strings.Contains(u.Host, "%") || !isHostname(host):
		return errURLHost
	case isLoopbackName(host) && t.Loopback:
		return nil
	case isInternalName(host):
		return errURLAddress
	}
	return nil
}

// internalDomains are domains without public names: reserved by RFC 6762, 6761 and 8375, by ICANN,
// or common in resolvers of companies, homes and clusters. The last three serve the metadata of
// cloud providers.
var internalDomains = []string{
	"localhost", "local", "internal", "intranet", "private", "corp", "home", "lan", "localdomain", "home.arpa", "svc",
	"consul", "metadata.goog", "metadata.tencentyun.com", "metadata.platformequinix.com",
}

// isInternalName reports whether a name is internal: in an internal domain, or of a single label.
func isInternalName(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if !strings.Contains(host, ".") {
		return true
	}
	return slices.ContainsFunc(internalDomains, func(domain string) bool {
		return host == domain || strings.HasSuffix(host, "."+domain)
	})
}

// isLoopbackName reports whether a name is localhost, or below it.
func isLoopbackName(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isHostname reports whether DNS can hold the name. It refuses a name with a last label that begins
// with a digit. Such a name is, or resembles, an obsolete form of an IPv4 address (127.1,
// 0x7f000001).
func isHostname(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if len(s) < 1 || len(s) > 253 {
		return false
	}
	labels := strings.Split(s, ".")
	for _, label := range labels {
		if len(label) < 1 || len(label) > 63 || strings.Trim(label, "-") != label {
			return false
		}
		for _, c := range []byte(label) {
			if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
				return false
			}
		}
	}
	last := labels[len(labels)-1]
	return last[0] < '0' || last[0] > '9'
}

// CheckAddr checks an address right before it is dialled. ErrWebhookAddress: the address must not
// be dialled; the error does not name it. An IPv4 address inside an IPv6 address is checked as
// IPv4. Any port is allowed.
func (t WebhookTargets) CheckAddr(addr netip.AddrPort) error {
	ip := addr.Addr().Unmap() // ::ffff:a.b.c.d is dialled as IPv4
	if ip.Zone() != "" {
		return ErrWebhookAddress
	}
	if t.Loopback && ip.IsLoopback() {
		return nil
	}
	for _, ip := range judged(ip) {
		if publicOnly.SafeAddr(ip) != nil {
			return ErrWebhookAddress
		}
	}
	return nil
}

// nat64 is the well-known prefix of NAT64 (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// judged returns the addresses that must be public for a call to ip. A NAT64 gateway calls the IPv4
// address that the IPv6 address embeds. An ISATAP tunnel leads to the embedded IPv4 address, too.
// publicOnly refuses 6to4, Teredo, IPv4-compatible and private NAT64 addresses themselves.
func judged(ip netip.Addr) []netip.Addr {
	if ip.Is4() {
		return []netip.Addr{ip}
	}
	b := ip.As16()
	embedded := netip.AddrFrom4([4]byte(b[12:]))
	switch {
	case nat64.Contains(ip):
		return []netip.Addr{embedded}
	case (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP
		return []netip.Addr{ip, embedded}
	default:
		return []netip.Addr{ip}
	}
}
