package api

import (
	"strings"
	"testing"
)

func TestIsIdempotencyKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"a": true, "!~": true, strings.Repeat("k", 255): true,
		"": false, strings.Repeat("k", 256): false, "a b": false, "a\t": false, "é": false, "\x7f": false,
	} {
		if isIdempotencyKey(key) != want {
			t.Errorf("%q: %t", key, !want)
		}
	}
}
