package local

import (
	"errors"
	"os"
	"strings"
)

// The variables that configure the service, and those among them that steer tests.
const (
	servicePrefix = "SVC_"
	testPrefix    = "SVC_TEST_"
)

// Environ returns the environment for a process of the service that a program starts for itself: that of this
// process without the user's SVC_… variables, and then more. A later value of a name wins. SVC_TEST_… variables
// stay.
func Environ(more ...string) []string {
	var kept []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, servicePrefix) || strings.HasPrefix(entry, testPrefix) {
			kept = append(kept, entry)
		}
	}
	return append(kept, more...)
}

// SpoilEnviron gives this process SVC_… variables with which no process of the service starts. A TestMain that calls
// it makes every test fail that hands the user's variables on.
func SpoilEnviron() error {
	return errors.Join(os.Setenv("SVC_LISTEN", "spoilt"), os.Setenv("SVC_DATABASE_CONNS", "spoilt"), os.Setenv("SVC_SPOILT", "1"))
}
