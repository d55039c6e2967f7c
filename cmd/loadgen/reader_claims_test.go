package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Exactly one file of package models has each text, outside of comments: comments may be reworded.
func TestReaderClaimsNameOneFile(t *testing.T) {
	t.Parallel()
	comment := regexp.MustCompile(`(?m)^\s*(--|//).*$`)
	for _, c := range readerClaims {
		var found []string
		for _, pattern := range []string{"*.sql", "*.go"} {
			files, err := filepath.Glob("../../models/" + pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if strings.HasSuffix(file, "_test.go") {
					continue
				}
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(comment.ReplaceAllString(string(text), ""), c.text) {
					found = append(found, filepath.Base(file))
				}
			}
		}
		if len(found) != 1 {
			t.Errorf("%s: %q is in %q, want one file", c.name, c.text, found)
		}
	}
}
