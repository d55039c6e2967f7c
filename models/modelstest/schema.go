package modelstest

import (
	"context"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"partnerbilling/models"
)

// Schema describes what the migrations create, one line each, in order: columns, indexes,
// constraints, enum values, functions, triggers, and the recorded migrations. Tests compare the
// lines of two databases.
func Schema(t testing.TB, store *models.Store) []string {
	t.Helper()
	var all []string
	if err := store.DB().NewRaw(`
SELECT format('column %s.%s %s null:%s default:%s', table_name, column_name, udt_name, is_nullable, column_default)
FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT format('constraint %s %s', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint
          WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT format('enum %s %s', enumtypid::regtype, enumlabel) FROM pg_enum
UNION ALL SELECT format('function %s %s', proname, prosrc) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT format('trigger %s', pg_get_triggerdef(oid)) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT format('migration %s %s', name, checksum) FROM schema_migrations
ORDER BY 1`).Scan(t.Context(), &all); err != nil {
		t.Fatalf("modelstest: schema: %v", err)
	}
	return all
}

// AwaitLockWait waits until a session of the store's database waits for a lock, and fails the test
// after a minute.
func AwaitLockWait(t testing.TB, store *models.Store) {
	t.Helper()
	await(t, "a session waits for a lock", func(ctx context.Context) (waiting bool, err error) {
		err = store.DB().NewRaw(`
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
	AND wait_event_type = 'Lock')`).Scan(ctx, &waiting)
		return waiting, err
	})
}

// Vacuum vacuums and analyses a table until all its pages are visible to every transaction, as
// index-only scans need. A single VACUUM may skip pages, because of an older snapshot such as that
// of an automatic ANALYZE. Vacuum fails the test after a minute.
func Vacuum(t testing.TB, store *models.Store, table string) {
	t.Helper()
	await(t, "all pages of "+table+" are visible", func(ctx context.Context) (visible bool, err error) {
		if _, err := store.DB().ExecContext(ctx, "VACUUM ANALYZE ?", bun.Ident(table)); err != nil {
			return false, err
		}
		err = store.DB().NewRaw(`
SELECT bool_and(relallvisible >= relpages) FROM pg_class
WHERE oid = ?0::regclass OR oid IN (SELECT relid FROM pg_partition_tree(?0::regclass) WHERE isleaf)`, table).
			Scan(ctx, &visible)
		return visible, err
	})
}

// await calls done until it returns true. It fails the test after a minute, or when done returns an
// error, with what as the reason.
func await(t testing.TB, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		switch ok, err := done(ctx); {
		case err != nil:
			t.Fatalf("modelstest: not in time: %s: %v", what, err)
		case ok:
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("modelstest: not in time: %s", what)
		case <-poll.C:
		}
	}
}
