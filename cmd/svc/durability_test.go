package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"partnerbilling/models/modelstest"
	"partnerbilling/models/seal"
)

// In production, API and worker refuse a database that may lose commits, and name every unsafe
// setting. Here the server does not flush, and its commits do not wait. A sandbox starts with a
// warning.
func TestProductionRefusesUnsafeDatabase(t *testing.T) {
	t.Parallel()
	dsn := modelstest.DSN(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	database := pgx.Identifier{conn.Config().Database}.Sanitize()
	if _, err := conn.Exec(t.Context(), "ALTER DATABASE "+database+" SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"SVC_ENV": "production", "SVC_DATABASE_URL": dsn, "SVC_REDIS_URL": "redis://127.0.0.1:1",
		"SVC_LISTEN":     "127.0.0.1:0",
		"SVC_MASTER_KEY": seal.GenerateMasterKey(), "SVC_PUBLIC_BASE_URL": "https://billing.example",
		"SVC_RAIL_URL": "https://rail.example", "SVC_RAIL_KEY": "id:" + strings.Repeat("s", minRailSecret),
		"SVC_ALLOW_PLAIN": "postgres,redis",
	}
	settings := []string{"fsync is off", "full_page_writes is off", "synchronous_commit is off"}
	for _, command := range []string{"api", "worker"} {
		code, _, stderr := svc(t, env, command)
		last := stderr[strings.LastIndex(strings.TrimSpace(stderr), "\n")+1:]
		for _, setting := range settings {
			if code == 0 || !strings.Contains(last, setting) {
				t.Errorf("svc %s: exit code %d, want an error with %q: %s", command, code, setting, last)
			}
		}
	}
	p := startSvc(t, with(env, "SVC_ENV", "sandbox"), "api")
	p.expect("listens on")
	for _, setting := range settings {
		if !strings.Contains(p.stderr.String(), setting) {
			t.Errorf("the sandbox does not warn that %s", setting)
		}
	}
}
