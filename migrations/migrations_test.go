package migrations_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func TestMain(m *testing.M) { modelstest.Main(m) }

// schema lists everything that the migrations make: columns, indexes, constraints, enum values and functions.
func schema(t *testing.T, store *models.Store) []string {
	t.Helper()
	var all []string
	if err := store.DB().NewRaw(`
SELECT format('column %s.%s %s null:%s default:%s', table_name, column_name, udt_name, is_nullable, column_default)
FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE 'bun_%'
UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename NOT LIKE 'bun_%'
UNION ALL SELECT format('constraint %s %s', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint
          WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text NOT LIKE 'bun_%'
UNION ALL SELECT format('enum %s %s', enumtypid::regtype, enumlabel) FROM pg_enum
UNION ALL SELECT format('function %s %s', proname, prosrc) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
ORDER BY 1`).Scan(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestUpDownUp(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	before := schema(t, store)
	if n, err := migrations.Pending(t.Context(), store.DB()); n != 0 || err != nil {
		t.Fatalf("%d pending, %v", n, err)
	}
	down, err := migrations.Down(t.Context(), store.DB())
	if err != nil || down == 0 {
		t.Fatalf("took back %d, %v", down, err)
	}
	if left := schema(t, store); len(left) != 0 {
		t.Errorf("left after down: %q", left)
	}
	if n, err := migrations.Pending(t.Context(), store.DB()); n != down || err != nil {
		t.Errorf("%d pending after down, %v", n, err)
	}
	up, err := migrations.Up(t.Context(), store.DB())
	if err != nil || up != down {
		t.Fatalf("applied %d of %d again, %v", up, down, err)
	}
	if diff := cmp.Diff(before, schema(t, store)); diff != "" {
		t.Errorf("the schema after up, down, up (-before +after):\n%s", diff)
	}
}

func TestUpAtOnce(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	if _, err := migrations.Down(t.Context(), store.DB()); err != nil {
		t.Fatal(err)
	}
	applied, errs := make(chan int, 8), make(chan error, 8)
	for range cap(applied) {
		go func() {
			n, err := migrations.Up(t.Context(), store.DB())
			applied <- n
			errs <- err
		}()
	}
	total := 0
	for range cap(applied) {
		total += <-applied
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n, err := migrations.Pending(t.Context(), store.DB()); n != 0 || err != nil || total == 0 {
		t.Errorf("%d applied, %d pending, %v", total, n, err)
	}
}
