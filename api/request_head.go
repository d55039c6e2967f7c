package api

import (
	"bytes"
	"errors"
	"strings"

	"github.com/valyala/fasthttp"
)

var (
	errHeaderName = errors.New("api: white space in the name of a header")
	errProtocol   = errors.New("api: another protocol than HTTP/1")
)

// checkHead refuses the head of a request if fasthttp accepts it but a proxy may read it
// differently.
func checkHead(h *fasthttp.RequestHeader) error {
	switch {
	case !isHTTP1(string(h.Protocol())):
		return errProtocol
	case !hasPlainHeaderNames(h):
		return errHeaderName
	}
	return nil
}

// isHTTP1 reports whether a protocol is HTTP/1.x. Higher minor versions are compatible with
// HTTP/1.1 (RFC 9110 §2.5).
func isHTTP1(protocol string) bool {
	minor, ok := strings.CutPrefix(protocol, "HTTP/1.")
	return ok && len(minor) == 1 && minor[0] >= '0' && minor[0] <= '9'
}

// hasPlainHeaderNames reports whether no header's name contains white space. A proxy may read a
// name with white space as another name.
func hasPlainHeaderNames(h *fasthttp.RequestHeader) bool {
	for name := range h.All() {
		if bytes.ContainsAny(name, " \t") {
			return false
		}
	}
	return true
}
