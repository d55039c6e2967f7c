package api

import (
	"context"
	"strings"
)

// readIdempotencyKey copies the header Idempotency-Key to r.IdempotencyKey. It refuses a malformed
// or repeated header. Routes that do not accept the header ignore it.
func (s *Server) readIdempotencyKey(_ context.Context, r *Request) error {
	if !r.route.Idempotent {
		return nil
	}
	keys := r.headers(headerIdempotencyKey)
	if len(keys) == 0 {
		return nil
	}
	if len(keys) > 1 || !isIdempotencyKey(keys[0]) {
		return RefuseField(InvalidHeader, headerIdempotencyKey, "must be 1 to 255 visible ASCII characters, once")
	}
	r.IdempotencyKey = keys[0]
	return nil
}

func isIdempotencyKey(s string) bool {
	return len(s) >= 1 && len(s) <= 255 && strings.IndexFunc(s, func(c rune) bool { return c < '!' || c > '~' }) < 0
}
