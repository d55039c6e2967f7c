package models_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"partnerbilling/deploy/local"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// templates are the files with variables in upper case, or parts of such files: Go makes several
// statements of each.
var templates = []string{
	"batch_list.sql", "customer_fold.sql", "customer_fold_parts.sql", "customer_folded.sql", "customer_list.sql",
	"customer_make_nodes.sql", "movement_list.sql", "payment_intent_end_unpaid.sql", "payment_intent_list.sql",
	"reconciliation_rows.sql",
}

// psql prepares each .sql file as it stands, with its arguments as psql variables.
func TestFilesArePreparableInPsql(t *testing.T) {
	t.Parallel()
	programs, err := local.PostgresPrograms(t.Context())
	must(t, err)
	modelstest.Open(t)
	dsn := modelstest.DSN(t)
	files, err := filepath.Glob("*.sql")
	must(t, err)
	if len(files) < 20 {
		t.Fatalf("found %d files", len(files))
	}
	for _, file := range files {
		if slices.Contains(templates, file) {
			continue
		}
		text, err := os.ReadFile(file)
		must(t, err)
		args := []string{"--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"}
		for i, name := range postgres.SQL(string(text)).Names() {
			args = append(args, "--set", fmt.Sprintf("%s=$%d", name, i+1))
		}
		psql := exec.CommandContext(t.Context(), filepath.Join(programs, "psql"), append(args, dsn)...)
		psql.Stdin = strings.NewReader("PREPARE statement AS " + string(text) + ";\n")
		if out, err := psql.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}
