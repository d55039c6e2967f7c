// Package deploy_test tests the deployed manifests, alerts and documents against the real binary,
// its configuration and its metrics.
package deploy_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"partnerbilling/cmd/cmdtest"
	"partnerbilling/deploy/local"
	"partnerbilling/models/modelstest"
)

func TestMain(m *testing.M) {
	if err := local.SpoilEnviron(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(cmdtest.Main(func() int { return modelstest.Run(m) }))
}

// awaitTimeout bounds each wait for an expected event.
const awaitTimeout = 2 * time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	return string(content)
}

// readYAML decodes a YAML file with a single document.
func readYAML[T any](t *testing.T, path string) (v T) {
	t.Helper()
	must(t, yaml.Unmarshal([]byte(read(t, path)), &v))
	return v
}

// svc returns a command of the binary. Its only SVC_… variables are the given ones.
func svc(ctx context.Context, t *testing.T, variables map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, cmdtest.Build(t, "svc"), args...)
	cmd.Env = local.Environ()
	for name, value := range variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// output runs a command of the binary and returns its output. The command must succeed.
func output(t *testing.T, variables map[string]string, args ...string) string {
	t.Helper()
	out, err := svc(t.Context(), t, variables, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("svc %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// serve starts a serving command, which runs until the end of the test.
func serve(t *testing.T, variables map[string]string, args ...string) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	cmd := svc(ctx, t, variables, args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	t.Cleanup(func() {
		end()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("svc %v logged:\n%s", args, log.Bytes()[max(0, log.Len()-2000):])
		}
	})
}

// await requests the URL until the response has the status, and returns the body.
func await(t *testing.T, url string, status int) string {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	poll, deadline := time.NewTicker(20*time.Millisecond), time.After(awaitTimeout)
	defer poll.Stop()
	for last := ""; ; {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("%s did not respond with status %d in time; the last response: %s", url, status, last)
		}
		response, err := client.Get(url)
		if err != nil {
			last = err.Error()
			continue
		}
		var body bytes.Buffer
		_, err = body.ReadFrom(response.Body)
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode == status {
			return body.String()
		}
		last = fmt.Sprintf("%d %s", response.StatusCode, body.String())
	}
}

// configured returns the defaults of all configuration variables, by name.
func configured(t *testing.T) map[string]string {
	t.Helper()
	known := map[string]string{}
	variable := regexp.MustCompile(`(?m)^(SVC_\w+) +.*?(?: \(default ([^)]*)\))?$`)
	for _, m := range variable.FindAllStringSubmatch(output(t, nil, "config"), -1) {
		known[m[1]] = m[2]
	}
	if len(known) < 20 {
		t.Fatalf("svc config lists %v", known)
	}
	return known
}
