package main

import (
	"bytes"
	"encoding/json"
	"testing"
)

// figures runs a scenario that prints JSON.
func figures(t *testing.T, args ...string) (all []series, ratios []ratio) {
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

// A list of three times as many links reads no more than half as many blocks again, by whatever filters; and its totals are right
// while links are written.
func TestList(t *testing.T) {
	t.Parallel()
	all, ratios := figures(t, "list", "--few", "5000", "--links", "15000", "--reads", "1", "--writing", "1s")
	if len(all) != 14 || len(ratios) != 5 {
		t.Fatalf("%d series, %d ratios", len(all), len(ratios))
	}
	if blocks := ratios[3]; !blocks.met() {
		t.Errorf("%s: %v", blocks.Name, blocks.Value)
	}
	if right := ratios[4]; !right.met() {
		t.Errorf("%s: %v", right.Name, right.Value)
	}
}

func TestInvitations(t *testing.T) {
	t.Parallel()
	all, ratios := figures(t, "invitations", "--measure", "500ms", "--runs", "1")
	if len(all) != 2 || len(ratios) != 1 {
		t.Fatalf("%d series, %d ratios", len(all), len(ratios))
	}
}
