package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/deploy/local/localtest"
)

// A login stores a profile that only the user can read, and the next commands use it.
func TestLoginStoresAProfile(t *testing.T) {
	t.Parallel()
	server := newAPI(t, map[string]http.HandlerFunc{
		"GET /billing/sites/site_1/customers/ada": answer(`{"customerReference":"ada","state":"linked"}`),
	})
	file := filepath.Join(t.TempDir(), "deep", "profiles.json")
	environment := map[string]string{"SVCCTL_CONFIG": file, "SVC_DATA_DIR": "/none"}
	do := func(input string, args ...string) result { return runWith(t.Context(), environment, input, args...) }

	r := do(server.URL+"/\ncli_1\nsecret\nsite_1 site_2\n", "login")
	said := `profile "default" is in use: ` + server.URL + " as cli_1"
	if r.code != 0 || r.out != "" || !strings.Contains(r.errOut, said) {
		t.Fatalf("%+v", r)
	}
	stat, err := os.Stat(file)
	if err != nil || stat.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", stat.Mode(), err)
	}
	r = do("other\n", "login", "shop", "--base-url", server.URL, "--client-id", "cli_2", "--site", "site_3")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got profiles
	if err := json.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	want := profiles{Active: "shop", Profiles: map[string]profile{
		"default": {server.URL, "cli_1", "secret", []string{"site_1", "site_2"}},
		"shop":    {server.URL, "cli_2", "other", []string{"site_3"}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +stored):\n%s", diff)
	}

	if r := do("", "profiles", "use", "default"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	r = do("", "profiles", "list")
	line := "*  default  " + server.URL + "  cli_1   site_1 site_2"
	if !strings.Contains(r.out, line) || strings.Contains(r.out, "secret") {
		t.Errorf("%+v", r)
	}
	if r := do("", "customers", "get", "ada"); r.code != 0 || !strings.Contains(r.out, "linked") {
		t.Errorf("%+v", r)
	}
	if r := do("", "profiles", "remove", "default"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	r = do("", "customers", "get", "ada")
	if r.code != exitUsage || !strings.Contains(r.errOut, "no service is named") {
		t.Errorf("%+v", r)
	}
	if r := do("", "profiles", "use", "default"); r.code != exitNotFound {
		t.Errorf("%+v", r)
	}
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
		t.Errorf("temporary files are left: %v, %v", entries, err)
	}
}

// A login that fails stores nothing.
func TestLoginRefusesWhatDoesNotWork(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error":"invalid_client"}`))
	}))
	defer server.Close()
	for name, c := range map[string]struct {
		input string
		args  []string
		code  int
	}{
		"wrong secret": {server.URL + "\ncli\nwrong\n\n", nil, exitAuthentication},
		"no secret":    {server.URL + "\ncli\n", nil, exitUsage},
		"no URL":       {"", nil, exitUsage},
		"not a URL":    {"example.com\ncli\nsecret\n\n", nil, exitUsage},
		"with a path of credentials": {
			"https://user:password@example.com\ncli\nsecret\n\n", nil, exitUsage,
		},
	} {
		file := filepath.Join(t.TempDir(), "profiles.json")
		environment := map[string]string{"SVCCTL_CONFIG": file}
		r := runWith(t.Context(), environment, c.input, append([]string{"login"}, c.args...)...)
		if _, err := os.Stat(file); r.code != c.code || err == nil {
			t.Errorf("%s: %+v, stored: %v", name, r, err == nil)
		}
	}
}

// Completion offers values of the service. It is silent when the service does not answer.
func TestCompletion(t *testing.T) {
	t.Parallel()
	server := newAPI(t, map[string]http.HandlerFunc{
		"GET /billing/sites/site/customers": answer(`{"items":[{"customerReference":"tenant 7","state":"linked"},
			{"customerReference":"guest","state":"invited"}]}`),
		"GET /webhooks/endpoints": answer(`{"items":[{"endpoint":"default","url":"https://x/"},
			{"endpoint":"site_9","url":"https://y/"}]}`),
		"GET /webhooks/events": refuse(http.StatusInternalServerError, "requests:internal"),
	})
	for _, c := range []struct {
		url  string
		args []string
		want string
	}{
		{server.URL, []string{"customers", "get", ""}, "tenant 7\tlinked guest\tinvited"},
		{server.URL, []string{"customers", "revoke", "t"}, "tenant 7\tlinked"},
		{server.URL, []string{"invitations", "create", "x", "g"}, "guest\tinvited"},
		{server.URL, []string{"customers", "get", "x", ""}, ""},
		{server.URL, []string{"endpoints", "test", ""}, "default site_9\thttps://y/"},
		{server.URL, []string{"customers", "list", "--state", ""}, "invited linked expired revoked"},
		{server.URL, []string{"customers", "list", "-o", ""}, "table json jsonl csv"},
		{server.URL, []string{"logs", "tail", "--status", ""}, "2xx 3xx 4xx 5xx"},
		{server.URL, []string{"logs", "list", "--method", ""}, "GET HEAD POST PUT DELETE"},
		{server.URL, []string{"logs", "tail", ""}, ""},
		{server.URL, []string{"events", "get", ""}, ""},
		{"http://" + localtest.FreeAddress(t), []string{"customers", "get", ""}, ""},
		{"", []string{"customers", "get", ""}, ""},
	} {
		r := svcctl(t.Context(), c.url, append([]string{"__complete"}, c.args...)...)
		values, _, _ := strings.Cut(r.out, ":4")
		got := strings.ReplaceAll(strings.TrimSuffix(values, "\n"), "\n", " ")
		if got != c.want || r.code != 0 {
			t.Errorf("%s %q: %q, want %q; %+v", c.url, c.args, got, c.want, r)
		}
	}
	if r := svcctl(t.Context(), "", "completion", "bash"); r.code != 0 || !strings.Contains(r.out, "__start_svcctl") {
		t.Errorf("%d %.200s", r.code, r.out)
	}
}

// A file that is replaced stays what it was: a link, a pipe, a file with its mode.
func TestReplaceFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, mode := range map[string]os.FileMode{"shared": 0o644, "target": 0o640} {
		if err := errors.Join(os.WriteFile(at(name), []byte("old"), mode), os.Chmod(at(name), mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("target", at("link")), syscall.Mkfifo(at("pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	received := make(chan string, 1)
	go func() {
		content, err := os.ReadFile(at("pipe"))
		received <- fmt.Sprint(string(content), err)
	}()
	for _, name := range []string{"shared", "link", "new", "pipe"} {
		if err := replaceFileKeepingMode(at(name), []byte(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := <-received; got != "pipe<nil>" {
		t.Errorf("the pipe got %s", got)
	}
	for name, want := range map[string]struct {
		content string
		mode    os.FileMode
	}{
		"shared": {"shared", 0o644}, "target": {"link", 0o640}, "new": {"new", 0o600},
	} {
		content, err := os.ReadFile(at(name))
		stat, statErr := os.Lstat(at(name))
		if err = errors.Join(err, statErr); err != nil || string(content) != want.content || stat.Mode() != want.mode {
			t.Errorf("%s: %q, %v, %v", name, content, stat, err)
		}
	}
	if stat, err := os.Lstat(at("link")); err != nil || stat.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link: %v, %v", stat, err)
	}
	if err := replaceFile(at("shared"), []byte("secret")); err != nil {
		t.Fatal(err)
	}
	if stat, err := os.Stat(at("shared")); err != nil || stat.Mode() != 0o600 {
		t.Errorf("a private file: %v, %v", stat, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 5 {
		t.Errorf("temporary files are left: %v, %v", entries, err)
	}
}
