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
		// fasthttp's own: the first ends within ten seconds of its server, the second never, one for the process.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
	)
	if code == 0 && allTestsRan() {
		code = checkProvoked()
	}
	os.Exit(code)
}

// allTestsRan reports whether no flag has left tests out.
func allTestsRan() bool {
	for _, name := range []string{"run", "skip", "list", "fuzz"} {
		if flag.Lookup("test."+name).Value.String() != "" {
			return false
		}
	}
	return !testing.Short()
}

// checkProvoked returns an exit code: 1 if the catalogue has errors that no test of this package has provoked.
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
