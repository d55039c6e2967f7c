package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMissingErrorNamesInstallCommand(t *testing.T) {
	t.Parallel()
	acc, err := serverAccount("/")
	must(t, err)
	_, err = findPostgres(t.Context(), acc, 999)
	var missing *MissingError
	if !errors.As(err, &missing) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"PostgreSQL 999", "is not installed", "(found version ", "install"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not contain %q", err, want)
		}
	}
}

func TestMajorVersion(t *testing.T) {
	t.Parallel()
	tests := []struct {
		output string
		want   int // 0: not recognised
	}{
		{"postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)", 15},
		{"postgres (PostgreSQL) 18beta1", 18},
		{"postgres 15", 0},
		{"", 0},
	}
	for _, tt := range tests {
		program := filepath.Join(t.TempDir(), "postgres")
		must(t, os.WriteFile(program, []byte("#!/bin/sh\necho '"+tt.output+"'\n"), 0o700))
		got, err := majorVersion(t.Context(), program, pgVersion)
		if got != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("%q: got %d, %v", tt.output, got, err)
		}
	}
	m := redisVersion.FindStringSubmatch("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0")
	if m == nil || m[1] != "7" {
		t.Errorf("got %v", m)
	}
}

func TestDataRequiresItsPostgresVersion(t *testing.T) {
	t.Parallel()
	o := Options{Dir: openDir(t), Ephemeral: true, WithoutRedis: true}
	s := start(t, o)
	stop(t, s)
	must(t, os.WriteFile(s.dir.file("postgres/PG_VERSION"), []byte("999\n"), 0o600))
	_, err := Start(t.Context(), o)
	var missing *MissingError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "PostgreSQL 999, which created the data") {
		t.Errorf("got %v", err)
	}
}
