package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/client"
	"partnerbilling/deploy/local"
	"partnerbilling/models/modelstest"
	"partnerbilling/queue/queuetest"
)

// devFolder is the data folder of a svc dev, with the variables to start it.
type devFolder struct {
	t   *testing.T
	dir string
	env map[string]string
}

func newDevFolder(t *testing.T) devFolder {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")
	return devFolder{t, dir, map[string]string{
		"SVC_DATA_DIR": dir, "SVC_LISTEN": "127.0.0.1:0", "SVC_RATE_LIMIT": "off", "SVC_BATCH_RATE_LIMIT": "off",
		"SVC_LOG_LEVEL": "WARN",
	}}
}

// openDir returns a temporary folder that the private servers' account can enter. t.TempDir is not
// accessible to other users.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "svc-dev-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// start starts svc dev and waits until it is ready.
func (d devFolder) start(more ...string) (*process, sandboxInfo) {
	d.t.Helper()
	p := startSvc(d.t, with(d.env, more...), "dev")
	p.expect("The service runs at")
	return p, d.info()
}

func (d devFolder) info() sandboxInfo {
	d.t.Helper()
	path := filepath.Join(d.dir, sandboxFile)
	content, err := os.ReadFile(path)
	if err != nil {
		d.t.Fatal(err)
	}
	if stat, err := os.Stat(path); err != nil || stat.Mode().Perm() != 0o600 {
		d.t.Errorf("mode of %s: %v, %v", path, stat.Mode(), err)
	}
	var info sandboxInfo
	if err := json.Unmarshal(content, &info); err != nil {
		d.t.Fatal(err)
	}
	return info
}

// processEnv reads process.env.
func (d devFolder) processEnv() map[string]string {
	d.t.Helper()
	content, err := os.ReadFile(filepath.Join(d.dir, processEnvFile))
	if err != nil {
		d.t.Fatal(err)
	}
	env := make(map[string]string)
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[name] = value
	}
	return env
}

func partner(info sandboxInfo, n int) (*client.Client, string) {
	o := info.Organisations[n]
	return client.New(client.Config{
		BaseURL: info.BaseURL, ClientID: o.ClientID.String(), ClientSecret: o.ClientSecret,
	}), o.Sites[0].SiteID.String()
}

func get(t *testing.T, url, username, password string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if username != "" {
		req.SetBasicAuth(username, password)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestDevKeepsDataOverRestarts(t *testing.T) {
	d := newDevFolder(t)
	p, first := d.start()
	if len(first.Organisations) != 2 || len(first.Organisations[0].Sites) != 2 ||
		len(first.Organisations[1].Sites) != 2 {
		t.Fatalf("seeded %+v", first.Organisations)
	}
	link := regexp.MustCompile(`http://\S+`).FindString(p.expect("  console "))
	if status, page := get(t, link, "", ""); status != http.StatusOK || !strings.Contains(page, "signs in once") {
		t.Errorf("the console's link %s: %d %s", link, status, page)
	}
	api, site := partner(first, 0)
	if _, err := api.CreateInvitation(t.Context(), site, client.NewInvitation{CustomerReference: "ada"},
		""); err != nil {
		t.Fatal(err)
	}
	if _, err := api.SignUp(t.Context(), site, "ada", ""); err != nil {
		t.Fatal(err)
	}
	rows := []client.Row{{CustomerReference: "ada", RowReference: "r", Amount: 1}}
	batch := client.Batch{BatchReference: "b", Rows: rows}
	if _, err := api.SubmitBatch(t.Context(), site, batch); err != nil {
		t.Fatal(err)
	}
	if done, err := api.AwaitBatch(t.Context(), site, "b"); err != nil || done.Rows[0].Outcome != "succeeded" {
		t.Errorf("batch %+v, %v", done, err)
	}
	for path, login := range map[string]bool{
		"/livez": false, "/readyz": false, "/metrics": false, "/openapi.json": false, "/docs": false,
		"/ops/queues": true,
	} {
		username, password := "", ""
		if login {
			username, password = first.Ops.Username, first.Ops.Password
		}
		if status, _ := get(t, first.BaseURL+path, username, password); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status, _ := get(t, first.Ops.DashboardURL, "", ""); status != http.StatusUnauthorized {
		t.Errorf("the dashboard without a login: %d", status)
	}
	_, metrics := get(t, first.BaseURL+"/metrics", "", "")
	for _, want := range []string{`svc_rows_settled_total{outcome="succeeded"} 1`, "svc_tasks_oldest_due_seconds"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if _, err := api.AdvanceClock(t.Context(), 90*time.Minute); err != nil {
		t.Fatal(err)
	}
	if code := p.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(filepath.Join(d.dir, sandboxFile)); !os.IsNotExist(err) {
		t.Errorf("%s still exists after the end of the service", sandboxFile)
	}

	p, second := d.start()
	if got := p.expect("  clock "); !strings.Contains(got, "1h30m0s ahead") {
		t.Errorf("the clock is announced as %q", got)
	}
	diff := cmp.Diff(first.Organisations, second.Organisations, cmp.AllowUnexported(seededOrganisation{}))
	if diff != "" || first.Ops.Password != second.Ops.Password {
		t.Errorf("credentials changed (-first +second):\n%s", diff)
	}
	p.kill() // the private servers end with it

	path := filepath.Join(d.dir, sandboxFile)
	stale, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p = startSvc(t, with(d.env, "SVC_DEV_WORKER", "off"), "dev")
	p.expect("Starting PostgreSQL")
	if now, err := os.ReadFile(path); err == nil && string(now) == string(stale) { // the file is absent or new
		t.Errorf("%s of the killed service still exists", sandboxFile)
	}
	p.expect("The service runs at")
	third := d.info()
	api, _ = partner(third, 0)
	if customer, err := api.Customer(t.Context(), site, "ada"); err != nil || customer.State != "linked" {
		t.Errorf("after a kill: %+v, %v", customer, err)
	}
	batch.BatchReference = "c"
	if _, err := api.SubmitBatch(t.Context(), site, batch); err != nil {
		t.Fatal(err)
	}
	join := map[string]string{
		"SVC_ENV": "sandbox", "SVC_DATABASE_URL": third.DatabaseURL, "SVC_REDIS_URL": third.RedisURL,
		"SVC_PUBLIC_BASE_URL": third.BaseURL, "SVC_MASTER_KEY_FILE": third.MasterKeyFile,
	}
	if diff := cmp.Diff(join, d.processEnv()); diff != "" {
		t.Errorf("process.env (-want +got):\n%s", diff)
	}
	startSvc(t, with(join, "SVC_LOG_LEVEL", "WARN"), "worker")
	if done, err := api.AwaitBatch(t.Context(), site, "c"); err != nil || done.State != "settled" {
		t.Errorf("the joined worker: %+v, %v", done, err)
	}
}

// A second svc dev on the same folder is refused, and the first one is not affected.
func TestDevOnAFolderInUse(t *testing.T) {
	for name, env := range map[string][]string{
		"private servers": nil,
		"given servers":   {"SVC_DATABASE_URL", modelstest.DSN(t), "SVC_REDIS_URL", queuetest.Start(t).URL},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevFolder(t)
			_, before := d.start(env...)
			code, _, stderr := svc(t, with(d.env, env...), "dev")
			if code != 1 || !strings.Contains(stderr, "is in use by process") {
				t.Errorf("exit code %d: %s", code, stderr)
			}
			if after := d.info(); before.BaseURL != after.BaseURL {
				t.Errorf("the file has base URL %s, want %s", after.BaseURL, before.BaseURL)
			}
			if status, _ := get(t, before.BaseURL+"/readyz", "", ""); status != http.StatusOK {
				t.Errorf("readiness of the first svc dev: %d", status)
			}
		})
	}
}

// make forget removes the files of a killed service and keeps those of a running service.
func TestMakeForgetsAKilledService(t *testing.T) {
	d := newDevFolder(t)
	service, _ := d.start()
	forget := func() {
		t.Helper()
		command := exec.CommandContext(t.Context(), "make", "-C", "../..", "forget")
		command.Env = local.Environ("SVC_DATA_DIR=" + d.dir)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	files := []string{sandboxFile, sandboxEnvFile, processEnvFile}
	forget()
	for _, name := range files {
		if _, err := os.Stat(filepath.Join(d.dir, name)); err != nil {
			t.Errorf("running service: %v", err)
		}
	}
	service.kill()
	forget()
	for _, name := range files {
		if _, err := os.Stat(filepath.Join(d.dir, name)); !os.IsNotExist(err) {
			t.Errorf("killed service: %s still exists: %v", name, err)
		}
	}
}

func TestDevOnGivenServers(t *testing.T) {
	d := newDevFolder(t)
	p, info := d.start("SVC_DATABASE_URL", modelstest.DSN(t), "SVC_REDIS_URL", queuetest.Start(t).URL,
		"SVC_LOG_LEVEL", "INFO")
	for line := range strings.Lines(p.stderr.String()) { // on the terminal of a newcomer
		if strings.Contains(line, "level=INFO") && len(line) > 200 {
			t.Errorf("the banner comes after a line of %d columns: %s", len(line), line)
		}
	}
	if _, err := os.Stat(filepath.Join(d.dir, "servers")); !os.IsNotExist(err) {
		t.Error("private servers were started in addition to the given servers")
	}
	api, site := partner(info, 1)
	if n, err := api.CountCustomers(t.Context(), site, client.CustomerFilter{}); n != 0 || err != nil {
		t.Errorf("%d customers, %v", n, err)
	}
	other, otherSite := partner(info, 0)
	_, err := other.CountCustomers(t.Context(), site, client.CustomerFilter{})
	if !client.Has(err, "sites:site-not-accessible") {
		t.Errorf("another organisation's Site: %v (own: %s)", err, otherSite)
	}
}

func TestDevOnOccupiedAddress(t *testing.T) {
	d := newDevFolder(t)
	occupied, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = occupied.Close() }()
	code, _, stderr := svc(t, with(d.env, "SVC_LISTEN", occupied.Addr().String()), "dev")
	if code != 1 || !strings.Contains(stderr, "is in use by another process") ||
		!strings.Contains(stderr, "SVC_LISTEN") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// A process that joins with process.env uses the same rail. Keys stay out of the file.
func TestProcessEnvironmentNamesTheRail(t *testing.T) {
	t.Parallel()
	cfg := Config{
		Rail: "http", RailID: "gateway", RailURL: "http://127.0.0.1:1", RailKey: "id:secret", MasterKey: "key:value",
	}
	got := credentials{}.sandboxInfo(cfg, "").environment()
	for _, line := range []string{"SVC_RAIL=http\n", "SVC_RAIL_ID=gateway\n", "SVC_RAIL_URL=http://127.0.0.1:1\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("process.env lacks %q:\n%s", line, got)
		}
	}
	if strings.Contains(got, "secret") || strings.Contains(got, "key:value") {
		t.Errorf("process.env has a key:\n%s", got)
	}
}
