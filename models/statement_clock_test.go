package models_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A statement that reads clock_timestamp() twice may get two times: a lease that ends in between is
// neither held nor expired. Statements use statement_timestamp(), which is fixed.
func TestStatementsReadTheClockOnce(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"*.go", "*.sql", "../migrations/*.sql"} {
		files, err := filepath.Glob(pattern)
		must(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			must(t, err)
			if strings.Contains(string(source), "clock_timestamp()") {
				t.Errorf("%s reads clock_timestamp()", file)
			}
		}
	}
}
