package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/deploy/local"
)

// transcriptBlock finds the README's shell blocks, and the answer that follows one, if any.
var transcriptBlock = regexp.MustCompile("(?s)```sh\n(.*?)```(?:\n\n```(?:json|text)\n(.*?)```)?")

// TestReadmeIsATrueTranscript runs the README's shell blocks as they are printed, in one shell, against a fresh svc dev, and
// compares what they print with what the README says, but for what is different each time.
func TestReadmeIsATrueTranscript(t *testing.T) {
	d := newDevFolder(t)
	dir := filepath.Dir(d.dir)
	d.env["SVC_DATA_DIR"] = filepath.Join(dir, ".svc")
	d.dir = d.env["SVC_DATA_DIR"]
	d.start()
	build(t, filepath.Join(d.dir, "bin"))
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(readme), "127.0.0.1:9000", freeAddress(t))
	const mark = "@@ end of a block @@"
	script, want := "set -eu\n", []string{}
	for _, block := range transcriptBlock.FindAllStringSubmatch(text, -1) {
		script += block[1] + fmt.Sprintf("echo; echo '%s'\n", mark)
		want = append(want, sameEveryTime(block[2]))
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script) //nolint:gosec // the README's own commands
	cmd.Dir, cmd.Env = dir, local.Environ()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the transcript ends with %v after:\n%s", err, out)
	}
	blocks := strings.Split(string(out), mark)
	if len(want) < 6 || len(blocks) != len(want)+1 {
		t.Fatalf("%d blocks, %d answers", len(want), len(blocks)-1)
	}
	for i, w := range want {
		if diff := cmp.Diff(w, sameEveryTime(blocks[i])); diff != "" {
			t.Errorf("block %d (-README +here):\n%s", i+1, diff)
		}
	}
}

// build makes the binaries that make run would have made.
func build(t *testing.T, dir string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "../svc", "../svcctl").CombinedOutput(); err != nil { //nolint:gosec // our own code
		t.Fatalf("build: %v\n%s", err, out)
	}
}

// freeAddress returns an address that is reserved for a listener of the test.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := local.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })
	return port.Address()
}

var everyTimeAnew = []struct {
	pattern *regexp.Regexp
	as      string
}{
	{regexp.MustCompile(`\b1[0-9]{12}\b`), "TIME"},
	{regexp.MustCompile(`"traceId":"[0-9a-f]{32}"`), `"traceId":"TRACE"`},
	{regexp.MustCompile(`(?i:http)://127\.0\.0\.1:\d+`), "BASE"},
	{regexp.MustCompile(`/P/[A-Z2-7]{16}`), "/P/CODE"},
	{regexp.MustCompile(`/signup/[A-Za-z0-9_-]+`), "/signup/TOKEN"},
	{regexp.MustCompile(`\b([a-z]+)_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "${1}_ID"},
}

func sameEveryTime(s string) string {
	for _, e := range everyTimeAnew {
		s = e.pattern.ReplaceAllString(s, e.as)
	}
	return strings.TrimSpace(s)
}

// directRequirement finds the modules in go.mod that our own code imports.
var directRequirement = regexp.MustCompile(`(?m)^\t(?:github\.com/)?(\S+) v\S+$`)

// TestReadmeGivesAReasonForEveryDependency holds the table of dependencies against go.mod. A module's major version and its
// submodules need no line of their own.
func TestReadmeGivesAReasonForEveryDependency(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(readme), "\n## Dependencies\n")
	found := directRequirement.FindAllStringSubmatch(string(mod), -1)
	if len(found) < 20 {
		t.Fatalf("%d requirements found", len(found))
	}
	for _, m := range found {
		parts := strings.SplitN(m[1], "/", 3)
		if name := strings.Join(parts[:min(2, len(parts))], "/"); !strings.Contains(table, name) {
			t.Errorf("README.md gives no reason for %s", m[1])
		}
	}
}
