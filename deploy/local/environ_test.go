package local

import (
	"slices"
	"testing"
)

func TestEnvironOmitsUserVariables(t *testing.T) {
	t.Setenv("SVC_LISTEN", "127.0.0.1:8188")
	t.Setenv("SVC_TEST_DATABASE_URL", "postgres://x")
	t.Setenv("OTHER", "kept")
	got := Environ("SVC_ENV=sandbox")
	for entry, want := range map[string]bool{
		"SVC_LISTEN=127.0.0.1:8188":          false,
		"SVC_TEST_DATABASE_URL=postgres://x": true,
		"OTHER=kept":                         true,
		"SVC_ENV=sandbox":                    true,
	} {
		if slices.Contains(got, entry) != want {
			t.Errorf("%s: present %t, want %t", entry, !want, want)
		}
	}
}
