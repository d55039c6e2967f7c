package local

import (
	"errors"
	"os"
	"strings"
)

// The prefixes of the environment variables that configure the service, and of those that configure
// its tests.
const (
	servicePrefix = "SVC_"
	testPrefix    = "SVC_TEST_"
)

// Environ returns the environment for a child process of the service, as NAME=value entries: the
// environment of this process without SVC_… variables, followed by more. It keeps SVC_TEST_…
// variables. Later entries of a name override earlier ones.
func Environ(more ...string) []string {
	var kept []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, servicePrefix) || strings.HasPrefix(entry, testPrefix) {
			kept = append(kept, entry)
		}
	}
	return append(kept, more...)
}

// SpoilEnviron sets SVC_… variables of this process to values that the service refuses. TestMain
// calls it, so that a test fails if it passes the user's variables on to a child process.
func SpoilEnviron() error {
	return errors.Join(
		os.Setenv("SVC_LISTEN", "spoilt"),
		os.Setenv("SVC_DATABASE_CONNS", "spoilt"),
		os.Setenv("SVC_SPOILT", "1"),
	)
}
