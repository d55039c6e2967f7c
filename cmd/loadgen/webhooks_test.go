package main

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestWebhooks(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := run(t.Context(), []string{
		"webhooks", "--endpoints", "20", "--organisations", "6", "--rate", "40", "--warm-up", "1s", "--measure", "2s",
		"--backlog", "100", "--runs", "1", "--json",
	}, &out)
	if err != nil {
		t.Fatal(err)
	}
	var figures struct {
		Series []series `json:"series"`
		Ratios []ratio  `json:"ratios"`
	}
	if err := json.Unmarshal(out.Bytes(), &figures); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if len(figures.Series) != 6 || len(figures.Ratios) != 1 {
		t.Fatalf("printed %s", out.String())
	}
	for _, s := range figures.Series {
		if len(s.Values) != 1 || s.Values[0] <= 0 {
			t.Errorf("%s: %v", s.Name, s.Values)
		}
	}
}
