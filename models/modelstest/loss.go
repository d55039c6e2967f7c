package modelstest

import (
	"context"
	"fmt"
	"testing"

	"github.com/uptrace/bun"

	"partnerbilling/models"
)

// Backup copies the tables. lose restores the copy and makes the server look like another one:
// everything committed since Backup is lost, as after the promotion of a lagging standby.
func Backup(t testing.TB, store *models.Store) (lose func()) {
	t.Helper()
	var tables []string
	err := store.DB().NewRaw(`
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
    AND NOT relispartition
ORDER BY 1`).Scan(t.Context(), &tables)
	if err != nil {
		t.Fatal(err)
	}
	statements := []string{"DROP SCHEMA IF EXISTS backup CASCADE", "CREATE SCHEMA backup"}
	for _, table := range tables {
		statements = append(statements, fmt.Sprintf("CREATE TABLE backup.%[1]s AS TABLE public.%[1]s", table))
	}
	inOneTransaction(t, store, statements)
	return func() {
		t.Helper()
		statements := []string{
			"SET LOCAL session_replication_role = replica", // no triggers, no foreign keys
			// An ALWAYS trigger fires in spite of the role.
			"ALTER TABLE audit_log DISABLE TRIGGER audit_log_append_only",
		}
		for _, table := range tables {
			if table == "service_clock" { // service time does not go back
				continue
			}
			statements = append(statements,
				"DELETE FROM public."+table, fmt.Sprintf("INSERT INTO public.%[1]s SELECT * FROM backup.%[1]s", table))
		}
		inOneTransaction(t, store, append(statements,
			"ALTER TABLE audit_log ENABLE ALWAYS TRIGGER audit_log_append_only",
			"UPDATE database_epoch SET timeline = 'lost'"))
	}
}

func inOneTransaction(t testing.TB, store *models.Store, statements []string) {
	t.Helper()
	err := store.DB().RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		for _, statement := range statements {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
