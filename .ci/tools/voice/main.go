// Command voice checks the comments of Go, SQL and Make files and the names that Go files declare:
// comments are wrapped, and retired words do not appear.
//
//	voice [directory]
//
// It prints each violation and exits with status 1 if there is one.
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

// checkTree checks the files under dir that Git tracks or would track.
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
