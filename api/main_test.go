package api_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"partnerbilling/api"
	"partnerbilling/models/modelstest"
)

func TestMain(m *testing.M) {
	code := modelstest.Run(m,
		// fasthttp's goroutines: the first outlives its server, the second runs per process.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
	)
	if code == 0 && allTestsRan() {
		code = checkProvoked()
	}
	os.Exit(code)
}

// allTestsRan reports whether no flag excludes tests.
func allTestsRan() bool {
	for _, name := range []string{"run", "skip", "list", "fuzz"} {
		if flag.Lookup("test."+name).Value.String() != "" {
			return false
		}
	}
	return true
}

// checkProvoked returns exit code 1 if no test of this package provokes some error of the
// catalogue, else 0.
func checkProvoked() int {
	code := 0
	for _, e := range api.Catalogue() {
		if !api.Answered(e.Code) {
			fmt.Fprintf(os.Stderr, "no test provokes the error %s (%d)\n", e.Code, e.Status)
			code = 1
		}
	}
	return code
}
