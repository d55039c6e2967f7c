package models

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
)

// MaxReturnURLLength is the maximum length of a return URL, in bytes.
const MaxReturnURLLength = 2048

// errReturnURLForm is a fault of a return URL, worded for the partner.
var errReturnURLForm = errors.New("must be an absolute URL in printable ASCII, of at most 2048 characters")

// CheckReturnURL checks the URL that leads a customer's browser back to the partner: https, in the
// sandbox also http. Only the browser follows it, so any address is allowed.
func CheckReturnURL(raw string, sandbox bool) error {
	u, err := url.Parse(raw)
	printable := strings.IndexFunc(raw, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"<>\^`+"`{|}", c) }) < 0
	if err != nil || !printable || len(raw) > MaxReturnURLLength || u.Opaque != "" || u.Host == "" {
		return errReturnURLForm
	}
	switch {
	case u.Scheme != "https" && !sandbox:
		return errURLHTTPS
	case u.Scheme != "https" && u.Scheme != "http":
		return errURLScheme
	case u.User != nil || strings.Contains(u.Host, "@"):
		return errURLUserinfo
	}
	ip, err := netip.ParseAddr(u.Hostname())
	isAddress := err == nil && ip.Zone() == "" && strings.HasPrefix(u.Host, "[") == ip.Is6()
	if !isAddress && (strings.Contains(u.Host, "%") || !isHostname(u.Hostname())) {
		return errURLHost
	}
	return nil
}
