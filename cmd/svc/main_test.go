package main

import (
	"os"
	"testing"

	"partnerbilling/models/modelstest"
)

// runMain makes the test binary behave as svc, so that tests can start processes of exactly what they test.
const runMain = "SVC_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
	}
	modelstest.Main(m)
}
