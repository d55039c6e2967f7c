package postgres_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"partnerbilling/models/postgres"
)

// weakRole creates a role with a setting of its own, and returns its DSN.
func weakRole(t *testing.T, setting string) (dsn string, alter func(string)) {
	t.Helper()
	owner, admin := privateServer(t)
	alter = func(clause string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), "ALTER ROLE weak "+clause); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.Exec(t.Context(), "CREATE ROLE weak LOGIN SUPERUSER PASSWORD 'weak'"); err != nil {
		t.Fatal(err)
	}
	alter(setting)
	u, err := url.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("weak", "weak")
	return u.String(), alter
}

// The error names every setting that is too weak.
func TestWeakSettingsAreNamed(t *testing.T) {
	t.Parallel()
	dsn, _ := weakRole(t, "SET synchronous_commit = local")
	err := open(t, postgres.Config{DSN: dsn}).RequireDurability(t.Context()) // the test's server does not flush either
	if !errors.Is(err, postgres.ErrNotDurable) {
		t.Fatal(err)
	}
	for _, want := range []string{"fsync is off", "full_page_writes is off", "synchronous_commit is local",
		"role weak"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

// The check reads the role's setting, whatever the session's setting is.
func TestRoleSettingBehindPooler(t *testing.T) {
	t.Parallel()
	dsn, _ := weakRole(t, "IN DATABASE postgres SET synchronous_commit = off")
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/postgres"
	q := u.Query()
	q.Set("synchronous_commit", "on")
	u.RawQuery = q.Encode()
	err = open(t, postgres.Config{DSN: u.String()}).CheckDurability(t.Context())
	if err == nil || !strings.Contains(err.Error(), "synchronous_commit is off set for role weak") {
		t.Error(err)
	}
}

// A stored value is read whole, whatever characters it has.
func TestStoredSettingWithEqualsSign(t *testing.T) {
	t.Parallel()
	dsn, _ := weakRole(t, "SET application_name = 'a=b=c'")
	got, err := open(t, postgres.Config{DSN: dsn}).StoredSetting(t.Context(), "application_name")
	if err != nil || got != "a=b=c" {
		t.Errorf("%q, %v", got, err)
	}
}

// A role that becomes weak after the start gets no new connections, and the error says why.
func TestRoleBecomesWeak(t *testing.T) {
	t.Parallel()
	dsn, alter := weakRole(t, "SET synchronous_commit = on")
	db := open(t, postgres.Config{DSN: dsn, MaxConns: 1})
	db.ForceDurability()
	if err := db.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	alter("SET synchronous_commit = off")
	db.Reconnect()
	err := db.Ping(t.Context())
	if !errors.Is(err, postgres.ErrUnavailable) || !errors.Is(err, postgres.ErrNotDurable) ||
		!strings.Contains(err.Error(), "role weak") {
		t.Errorf("with synchronous_commit off: %v", err)
	}
	alter("RESET synchronous_commit")
	if err := db.Ping(t.Context()); err != nil {
		t.Errorf("after the repair: %v", err)
	}
	if _, err := db.Bun().ExecContext(t.Context(), "SET synchronous_commit = off"); err != nil { // as through a pooler
		t.Fatal(err)
	}
	if err := db.Ping(t.Context()); !errors.Is(err, postgres.ErrNotDurable) {
		t.Errorf("in a session that another client has changed: %v", err)
	}
	if err := db.Ping(t.Context()); err != nil {
		t.Errorf("in the next session: %v", err)
	}
}
