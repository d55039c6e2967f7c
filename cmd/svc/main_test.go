package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"partnerbilling/deploy/local"
	"partnerbilling/models/modelstest"
)

// runMain makes the test binary behave as svc, so that tests can start processes of exactly what they test.
const runMain = "SVC_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
	}
	if err := local.SpoilEnviron(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	waitTogether()
	modelstest.Main(m)
}

// waitTogether runs more tests at once than there are processors: most of the time they wait for leases to end and for banks
// to come back.
func waitTogether() {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
