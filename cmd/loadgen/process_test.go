package main

import (
	"strings"
	"testing"
)

// A process that ends by itself is an error, even with exit code 0.
func TestCheckRunning(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{"0": "sh -c has ended: exit status 0", "3": "has ended: exit status 3"} {
		p, _, err := launch("sh", "/bin/sh", nil, "-c", "exit "+code)
		if err != nil {
			t.Fatal(err)
		}
		<-p.done
		if err := checkRunning(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("exit code %s: %v", code, err)
		}
	}
}
