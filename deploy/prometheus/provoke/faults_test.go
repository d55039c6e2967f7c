package main

import (
	"os"
	"testing"

	"go.yaml.in/yaml/v4"
)

// A fault provokes each alert, or unprovoked says why none does.
func TestEveryAlertIsProvokedOrExplained(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	known, fired := map[string]bool{}, map[string]bool{}
	for _, f := range faults {
		for _, name := range f.fires {
			fired[name] = true
		}
	}
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			known[r.Alert] = true
			if r.Alert != "" && fired[r.Alert] == (unprovoked[r.Alert] != "") {
				t.Errorf("%s: a fault provokes it: %t; why none does: %q", r.Alert, fired[r.Alert], unprovoked[r.Alert])
			}
		}
	}
	for name := range unprovoked {
		if !known[name] {
			t.Errorf("%s is not an alert", name)
		}
	}
}
