package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write the command reference of README.md")

// referenceMark begins the generated part of README.md.
const referenceMark = "## Commands\n"

// README.md ends with a reference of all commands and flags.
// `go test ./cmd/svcctl -run Reference -update` writes it.
func TestReferenceIsComplete(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	head, shown, ok := strings.Cut(string(content), referenceMark)
	if !ok {
		t.Fatalf("README.md has no heading %q", referenceMark)
	}
	c := &ctl{getenv: func(string) string { return "" }, out: io.Discard, errOut: io.Discard}
	want := "\n" + reference(c.root())
	for _, e := range exitCodes {
		if line := fmt.Sprintf("| %d | %s |\n", e.code, e.text); !strings.Contains(head, line) {
			t.Errorf("README.md lacks the exit code %s", line)
		}
	}
	if *update {
		if err := os.WriteFile("README.md", []byte(head+referenceMark+want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("README.md differs from the commands (-commands +README.md):\n%s", diff)
	}
}

// The help of every command fits a terminal.
func TestHelpIsNarrow(t *testing.T) {
	t.Parallel()
	c := &ctl{getenv: func(string) string { return "" }, out: io.Discard, errOut: io.Discard}
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Long + "\n" + cmd.UsageString()) {
			if n := utf8.RuneCountInString(line); n > helpWidth+1 { // with the line feed
				t.Errorf("%s: a line of %d columns: %s", cmd.CommandPath(), n-1, line)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(c.root())
}

// reference returns the reference of all commands.
func reference(root *cobra.Command) string {
	var b strings.Builder
	root.InitDefaultHelpFlag()
	fmt.Fprintln(&b, "Every command has these flags:\n\n```text")
	writeFlags(&b, root.PersistentFlags().FlagUsagesWrapped(helpWidth))
	fmt.Fprintln(&b, "```")
	for _, group := range root.Groups() {
		fmt.Fprintf(&b, "\n### %s\n", strings.TrimSuffix(group.Title, ":"))
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID {
				writeCommand(&b, cmd)
			}
		}
	}
	return b.String()
}

func writeCommand(b *strings.Builder, cmd *cobra.Command) {
	if cmd.HasSubCommands() {
		for _, sub := range cmd.Commands() {
			writeCommand(b, sub)
		}
		return
	}
	usage := cmd.CommandPath() + strings.TrimPrefix(cmd.Use, cmd.Name())
	fmt.Fprintf(b, "\n**`%s`**: %s.\n", usage, strings.TrimSuffix(cmd.Short, "."))
	var flags strings.Builder
	writeFlags(&flags, cmd.LocalNonPersistentFlags().FlagUsagesWrapped(helpWidth))
	if flags.Len() > 0 {
		fmt.Fprintf(b, "\n```text\n%s```\n", flags.String())
	}
}

// writeFlags writes the flags, one a line, without those that README.md describes for all commands.
func writeFlags(b *strings.Builder, usages string) {
	for line := range strings.Lines(usages) {
		if !strings.Contains(line, "-h, --help ") && !strings.Contains(line, "-o, --output ") {
			b.WriteString(line)
		}
	}
}
