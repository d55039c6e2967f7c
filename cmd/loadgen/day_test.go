package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"partnerbilling/api/client"
	"partnerbilling/cmd/cmdtest"
	"partnerbilling/deploy/local"
)

// TestMain runs the tests, or main if a scenario starts the test binary as loadgen.
func TestMain(m *testing.M) {
	const runMain = "LOADGEN_TEST_RUN_MAIN"
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	err := errors.Join(os.Setenv(runMain, "1"), local.SpoilEnviron())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(cmdtest.Main(m.Run))
}

// startService starts svc dev on a temporary directory, and returns the path of its sandbox.json.
func startService(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "loadgen-") // the account of the private servers cannot read t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	cmd := exec.Command(cmdtest.Build(t, "svc"), "dev") // ended by the clean-up
	cmd.Env = local.Environ("SVC_DATA_DIR="+data, "SVC_LISTEN=127.0.0.1:0", "SVC_RATE_LIMIT=off",
		"SVC_BATCH_RATE_LIMIT=off", "SVC_LOG_LEVEL=WARN")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("svc dev ended with %v:\n%s", err, stderr.String())
		}
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "The service runs at") {
			go func() { _, _ = io.Copy(io.Discard, stdout) }() // ends with the process
			return filepath.Join(data, "sandbox.json")
		}
	}
	t.Fatalf("svc dev did not start:\n%s", stderr.String())
	return ""
}

func TestDay(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"day", "--sandbox", startService(t), "--invited", "100"}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "every answer as expected") {
		t.Errorf("printed:\n%s", out.String())
	}
}

// A wrong answer to a repeated batch is described, though it is no error of the client.
func TestDayRefusesWrongReceipts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		replayed string
		data     string // of the answer; "" for the first receipt
		want     string
	}{
		"not replayed":            {replayed: "false", want: "is not marked as replayed"},
		"another receipt":         {replayed: "true", data: `{"rowCount":2}`, want: "the receipt of the same"},
		"another batch, accepted": {replayed: "true", want: "is accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := answeringWith(t, func(w http.ResponseWriter) {
				w.Header().Set("Idempotent-Replayed", tt.replayed)
				w.WriteHeader(http.StatusAccepted)
				_, _ = io.WriteString(w, `{"data":`+cmp.Or(tt.data, "{}")+`}`)
			})
			d := &day{api: api, site: "s"}
			d.batch = client.Batch{BatchReference: "b", Rows: []client.Row{{CustomerReference: "c", Amount: 1}}}
			if err := d.resubmit(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "}") ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// answeringWith returns a client of a service that grants tokens, and answers all other requests
// with answer.
func answeringWith(t *testing.T, answer func(w http.ResponseWriter)) *client.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/token") {
			_, _ = io.WriteString(w, `{"access_token":"t","token_type":"Bearer","expires_in":3600}`)
			return
		}
		answer(w)
	}))
	t.Cleanup(server.Close)
	return client.New(client.Config{BaseURL: server.URL, MaxRetries: -1})
}

func TestDayWithoutAService(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), []string{"day", "--sandbox", filepath.Join(t.TempDir(), "none")}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "is the service running?") {
		t.Errorf("error %v", err)
	}
}

// An answer about a cancelled batch must agree with the submission, and show no pending row.
func TestCheckCancelled(t *testing.T) {
	t.Parallel()
	batch := client.Batch{
		BatchReference: "b", Rows: []client.Row{{CustomerReference: "c", RowReference: "r", Amount: 5}},
	}
	receipt := client.Receipt{BatchReference: "b", RowCount: 1, TotalAmount: 5, SubmittedAt: 1, SettleBy: 2}
	for name, tt := range map[string]struct {
		change func(*client.BatchStatus)
		want   string // in the error; "" for none
	}{
		"in order":         {func(*client.BatchStatus) {}, ""},
		"another total":    {func(b *client.BatchStatus) { b.TotalAmount = 6 }, "does not agree"},
		"another deadline": {func(b *client.BatchStatus) { b.SettleBy = 3 }, "does not agree"},
		"no rows":          {func(b *client.BatchStatus) { b.Rows = nil }, "does not agree"},
		"another customer": {func(b *client.BatchStatus) { b.Rows[0].CustomerReference = "d" }, "was submitted as"},
		"a pending row":    {func(b *client.BatchStatus) { b.Rows[0].State = "pending" }, "is pending"},
	} {
		got := client.BatchStatus{
			BatchReference: "b", TotalAmount: 5, SubmittedAt: 1, SettleBy: 2,
			Rows: []client.RowStatus{{CustomerReference: "c", RowReference: "r", Amount: 5, State: "settled"}},
		}
		tt.change(&got)
		err := checkCancelled(got, batch, receipt)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
