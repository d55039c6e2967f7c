package models

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// MaxURLLength is the maximum length of a return URL or of an endpoint's URL, in bytes.
const MaxURLLength = 2048

// The faults of a URL, worded for the partner.
var (
	errURLForm     = fmt.Errorf("must be an absolute URL in printable ASCII, of at most %d characters", MaxURLLength)
	errURLHTTPS    = errors.New("must be an https URL")
	errURLScheme   = errors.New("must be an http or https URL")
	errURLUserinfo = errors.New("must not carry a user name or password")
	errURLHost     = errors.New("must name a host in letters, digits, hyphens and dots, or a plain IP address")
)

// parseURL parses a URL of a partner. It must be https; in the sandbox, http is allowed, too. The
// host is not checked.
func parseURL(raw string, sandbox bool) (*url.URL, error) {
	u, err := url.Parse(raw)
	forbidden := func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("\"<>\\^`{|}", c) }
	if err != nil || strings.ContainsFunc(raw, forbidden) || len(raw) > MaxURLLength || u.Opaque != "" || u.Host == "" {
		return nil, errURLForm
	}
	switch {
	case u.Scheme != "https" && !sandbox:
		return nil, errURLHTTPS
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errURLScheme
	case u.User != nil || strings.Contains(u.Host, "@"):
		return nil, errURLUserinfo
	}
	return u, nil
}

// CheckReturnURL checks the URL that leads a customer's browser back to the partner, and returns a
// fault worded for the partner. sandbox also allows http. Only the browser follows the URL, so it
// may name any address.
func CheckReturnURL(raw string, sandbox bool) error {
	u, err := parseURL(raw, sandbox)
	if err != nil {
		return err
	}
	ip, err := netip.ParseAddr(u.Hostname())
	isAddress := err == nil && ip.Zone() == "" && strings.HasPrefix(u.Host, "[") == ip.Is6()
	if !isAddress && (strings.Contains(u.Host, "%") || !isHostname(u.Hostname())) {
		return errURLHost
	}
	return nil
}
