package models_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A statement that reads clock_timestamp() twice may get two times: a lease that ended in between
// is neither held nor over. Statements go by statement_timestamp(), which stands still.
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
