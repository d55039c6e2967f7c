// Command voice checks the style of comments and names. Comments of Go, SQL and Make files must be
// wrapped and contain no retired words. The names that Go files declare must contain none either.
//
//	voice [directory]
//
// It prints each violation, and exits with status 1 if there is one. Any other error gives status
// 2.
package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	findings, err := checkTree(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "voice:", err)
		os.Exit(2)
	}
	for _, f := range findings {
		fmt.Println(f)
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
}

// checkTree returns the violations in the files under dir, sorted by file and line. It checks the
// files that Git tracks or would track, and skips testdata.
func checkTree(dir string) ([]finding, error) {
	list := exec.Command("git", "-C", dir, "ls-files", "-z", "--cached", "--others", "--exclude-standard",
		"*.go", "*.sql", "*Makefile")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of %s: %w", dir, err)
	}

	var all []finding
	for name := range strings.SplitSeq(string(out), "\x00") {
		if name == "" || strings.Contains(name, "testdata/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if os.IsNotExist(err) { // deleted, and not committed yet
			continue
		}
		if err != nil {
			return nil, err
		}
		found, err := checkFile(name, text)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b finding) int {
		return cmp.Or(strings.Compare(a.file, b.file), a.line-b.line)
	})
	return all, nil
}
