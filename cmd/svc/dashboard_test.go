package main

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"partnerbilling/api/operator"
	"partnerbilling/deploy/local"
	"partnerbilling/models/modelstest"
)

// hashPassword runs svc admin operator hash with a password on its standard input.
func hashPassword(t *testing.T, name, password string) string {
	t.Helper()
	var out bytes.Buffer
	root := (&program{stdout: &out, stderr: &out}).command()
	root.SetIn(strings.NewReader(password + "\r\n"))
	root.SetArgs([]string{"admin", "operator", "hash", name})
	must(t, root.ExecuteContext(t.Context()))
	return out.String()
}

// svc dashboard lets the operators of its file in, without a master key.
func TestDashboardOfNamedOperators(t *testing.T) {
	t.Parallel()
	servers, err := local.Temp(t.Context(), local.Options{Ephemeral: true, WithoutPostgres: true})
	must(t, err)
	t.Cleanup(func() { must(t, servers.Stop(context.Background())) })
	const password = "correct horse battery"
	file := filepath.Join(t.TempDir(), "operators")
	line := hashPassword(t, "jane", password)
	accounts, err := operator.ParseAccounts(line)
	if err != nil || len(accounts) != 1 || strings.Contains(line, password) {
		t.Fatalf("%s: %v", line, err)
	}
	must(t, os.WriteFile(file, []byte(line), 0o600))
	p := startSvc(t, map[string]string{
		"SVC_ENV": "sandbox", "SVC_DATABASE_URL": modelstest.DSN(t), "SVC_REDIS_URL": servers.RedisURL,
		"SVC_OPERATORS_FILE": file, "SVC_LISTEN": "127.0.0.1:0", "SVC_OPS_LISTEN": "127.0.0.1:0",
		"SVC_OPS_USERNAME": "john", "SVC_OPS_PASSWORD": "another password",
	}, "dashboard")
	url := after(p.expect("the dashboard is at"))
	ops := after(strings.Split(p.stdout.String(), "\n")[0])
	for _, tt := range []struct {
		name, password string
		want           int
	}{
		{"", "", http.StatusUnauthorized}, {"jane", "guess", http.StatusUnauthorized},
		{"jane", password, http.StatusOK}, {"john", "another password", http.StatusOK},
	} {
		if status, _ := get(t, url, tt.name, tt.password); status != tt.want {
			t.Errorf("%q: %d, want %d", tt.name, status, tt.want)
		}
	}
	if _, metrics := get(t, ops+"/metrics", "", ""); !strings.Contains(metrics,
		`svc_operator_logins_total{outcome="accepted"} 2`) {
		t.Errorf("metrics:\n%s", metrics)
	}
	if status, ready := get(t, ops+"/readyz", "", ""); status != http.StatusOK ||
		!strings.Contains(ready, `"postgres"`) {
		t.Errorf("readiness: %d %s", status, ready)
	}
	if code := p.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, line := range []string{"shutdown begins", "shutdown ends"} {
		if !strings.Contains(p.stderr.String(), line) {
			t.Errorf("it does not log %q", line)
		}
	}
}

// after returns the last word of a line.
func after(line string) string { return line[strings.LastIndexByte(line, ' ')+1:] }

func TestDashboardRefusesItsOperators(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "operators")
	must(t, os.WriteFile(file, []byte("jane:plain password\n"), 0o600))
	for name, cfg := range map[string]Config{
		"none": {}, "a plain password": {OperatorsFile: file}, "no file": {OperatorsFile: file + "x"},
		"a long password": {OpsUsername: "jane", OpsPassword: strings.Repeat("x", 73)},
	} {
		if accounts, err := cfg.operators(); err == nil || strings.Contains(err.Error(), "plain password") {
			t.Errorf("%s: %v, %v", name, accounts, err)
		}
	}
}
