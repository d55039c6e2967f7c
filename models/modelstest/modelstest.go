// Package modelstest gives each test a real database of its own, freshly migrated, on one private
// PostgreSQL server of the test process. It also has helpers that fill and check the database.
//
// The server starts when a test first needs it. A package that uses this kit has
//
//	func TestMain(m *testing.M) { modelstest.Main(m) }
//
// to stop the server after the tests. If the test process is killed, the server ends with it.
package modelstest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"partnerbilling/models"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// MasterKey is the text of the key ring of the stores that this package opens.
const MasterKey = "test:dGVzdHMgc2VhbCB0aGVpciBwYXJ0aWVzIHdpdGggaXQ="

// Main runs the tests of a package, stops everything that the kit started, checks for leaked
// goroutines, and exits. options exempt goroutines that a dependency is known to leak.
func Main(m *testing.M, options ...goleak.Option) { os.Exit(Run(m, options...)) }

// Run is Main without the exit, for packages that do more after their tests. It returns the exit
// code.
func Run(m *testing.M, options ...goleak.Option) int {
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintf(os.Stderr, "modelstest: stop the server: %v\n", err)
		return max(code, 1)
	}
	if code != 0 {
		return code // a failed test may leak goroutines
	}
	if err := goleak.Find(options...); err != nil {
		fmt.Fprintf(os.Stderr, "modelstest: %v\n", err)
		return 1
	}
	return 0
}

// Open returns a store on a fresh database of the test's own. The end of the test removes both.
func Open(t testing.TB) *models.Store {
	t.Helper()
	return Connect(t, DSN(t))
}

// Connect returns another store on the database at dsn. The end of the test closes it.
func Connect(t testing.TB, dsn string) *models.Store {
	t.Helper()
	store, err := models.Open(postgres.Config{DSN: dsn, ApplicationName: "test"})
	if err != nil {
		t.Fatalf("modelstest: %v", err)
	}
	store.SetKeyring(Keyring(t, MasterKey))
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("modelstest: close the store: %v", err)
		}
	})
	return store
}

// DSN returns the postgres:// URL of a fresh, migrated database of the test's own, for tests that
// start processes. The test's end drops it, even with open connections.
func DSN(t testing.TB) string {
	t.Helper()
	return dsn(t, (*cluster).create)
}

// EmptyDSN is DSN for an empty database, without the migrations.
func EmptyDSN(t testing.TB) string {
	t.Helper()
	return dsn(t, (*cluster).createEmpty)
}

// dsn creates a database and returns its URL. The test's end drops the database.
func dsn(t testing.TB, create func(*cluster, context.Context) (string, error)) string {
	t.Helper()
	c, err := shared.start(t.Context())
	if err != nil {
		t.Fatalf("modelstest: %v", err)
	}
	name, err := create(c, t.Context())
	if err != nil {
		t.Fatalf("modelstest: create a database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // the test's own has ended
		defer cancel()
		if err := c.drop(ctx, name); err != nil {
			t.Errorf("modelstest: drop the database: %v", err)
		}
	})
	return c.dsn(name)
}

// Keyring parses the text of a key ring; see seal.ParseKeyring.
func Keyring(t testing.TB, text string) *seal.Keyring {
	t.Helper()
	ring, err := seal.ParseKeyring(text)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}
