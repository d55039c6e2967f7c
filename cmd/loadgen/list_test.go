package main

import (
	"bytes"
	"encoding/json"
	"testing"
)

// results runs a scenario and returns its results.
func results(t *testing.T, args ...string) (all []series, ratios []ratio) {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), append(args, "--json"), &out); err != nil {
		t.Fatal(err)
	}
	var printed struct {
		Series []series `json:"series"`
		Ratios []ratio  `json:"ratios"`
	}
	if err := json.Unmarshal(out.Bytes(), &printed); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	for _, s := range printed.Series {
		if len(s.Values) == 0 || s.median() <= 0 {
			t.Errorf("%s: %v", s.Name, s.Values)
		}
	}
	return printed.Series, printed.Ratios
}

// A page of a list with three times as many links reads at most 1.5 times as many blocks, with any
// filters. Totals are correct while links are written.
func TestList(t *testing.T) {
	t.Parallel()
	all, ratios := results(t, "list", "--few", "5000", "--links", "15000", "--reads", "1", "--writing", "1s")
	if len(all) != 15 || len(ratios) != 5 {
		t.Fatalf("%d series, %d ratios", len(all), len(ratios))
	}
	if blocks := ratios[3]; !blocks.met() {
		t.Errorf("%s: %v", blocks.Name, blocks.Value)
	}
	if totals := ratios[4]; !totals.met() {
		t.Errorf("%s: %v", totals.Name, totals.Value)
	}
}

func TestInvitations(t *testing.T) {
	t.Parallel()
	all, ratios := results(t, "invitations", "--measure", "3s", "--runs", "1")
	if len(all) != 2 || len(ratios) != 1 {
		t.Fatalf("%d series, %d ratios", len(all), len(ratios))
	}
}
