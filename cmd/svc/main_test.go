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

// runMain is a variable that makes the test binary run svc, so that tests can start processes of
// the code under test.
const runMain = "SVC_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
	}
	if err := local.SpoilEnviron(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	increaseParallelism()
	modelstest.Main(m)
}

// increaseParallelism runs more tests in parallel than there are processors, because the tests
// mostly wait.
func increaseParallelism() {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
