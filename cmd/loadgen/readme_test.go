package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// help parses the flags of a command and returns its help text.
func help(t *testing.T, args ...string) string {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), append(args, "--help"), &out); err != nil {
		t.Errorf("loadgen %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

// The flags of each command in the README parse. The test runs none of the commands.
func TestReadmeCommandsExist(t *testing.T) {
	commands := regexp.MustCompile("(?:loadgen |`)([a-z]+ --[^`\n]*)").
		FindAllStringSubmatch(readFile(t, "README.md"), -1)
	if len(commands) < 10 {
		t.Fatalf("%d commands found", len(commands))
	}
	for _, m := range commands {
		args := slices.DeleteFunc(strings.Fields(m[1]), func(arg string) bool { return arg == "--help" })
		if text := help(t, args...); !strings.Contains(text, "loadgen "+args[0]+" [flags]") {
			t.Errorf("there is no loadgen %s:\n%s", m[1], text)
		}
	}
}

// The README's table lists exactly the scenarios, and make bench runs only scenarios of the table.
func TestReadmeListsEveryScenario(t *testing.T) {
	var commands, listed []string
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z-]+) +Measure `).FindAllStringSubmatch(help(t), -1) {
		commands = append(commands, m[1])
	}
	_, table, _ := strings.Cut(readFile(t, "README.md"), "\n## Scenarios\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		listed = append(listed, m[1])
	}
	slices.Sort(listed)
	if diff := cmp.Diff(commands, listed); diff != "" {
		t.Errorf("scenarios (-commands +README):\n%s", diff)
	}
	bench := regexp.MustCompile(`(?m)^BENCH \?= (.*)$`).FindStringSubmatch(readFile(t, "../../Makefile"))
	for _, scenario := range strings.Fields(bench[1]) {
		if !slices.Contains(listed, scenario) {
			t.Errorf("make bench runs %s, which the README does not list", scenario)
		}
	}
}
