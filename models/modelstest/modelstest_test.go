package modelstest_test

import (
	"fmt"
	"testing"

	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

func TestMain(m *testing.M) { modelstest.Main(m) }

func TestDatabasesAreMigratedAndApart(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			store := modelstest.Open(t)
			pending, err := migrations.Pending(t.Context(), store.DB())
			if err != nil || pending != 0 {
				t.Errorf("%d migrations are pending, %v", pending, err)
			}
			if _, err := store.DB().ExecContext(t.Context(), "CREATE TABLE mine ()"); err != nil {
				t.Errorf("the database is not the test's own: %v", err)
			}
		})
	}
}

func TestDSNGoesWithTheTest(t *testing.T) {
	t.Parallel()
	var dsn string
	t.Run("user", func(t *testing.T) {
		dsn = modelstest.DSN(t)
		ping(t, dsn, true)
		// A leaked connection does not prevent dropping the database.
		store := open(t, dsn)
		if err := store.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
	ping(t, dsn, false)
}

func ping(t *testing.T, dsn string, want bool) {
	t.Helper()
	if err := open(t, dsn).Ping(t.Context()); (err == nil) != want {
		t.Errorf("ping: %v", err)
	}
}

func open(t *testing.T, dsn string) *models.Store {
	t.Helper()
	store, err := models.Open(postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func BenchmarkDSN(b *testing.B) {
	for b.Loop() {
		modelstest.DSN(b)
	}
}
