package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"partnerbilling/cmd/cmdtest"
	"partnerbilling/deploy/local"
	"partnerbilling/models/modelstest"
)

func TestMain(m *testing.M) {
	if err := local.SpoilEnviron(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	increaseParallelism()
	os.Exit(cmdtest.Main(func() int { return modelstest.Run(m) }))
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
