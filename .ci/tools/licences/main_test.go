package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
)

func TestList(t *testing.T) {
	with := func(name, licence string) string {
		return `{"name":"` + name + `","evidence":{"licenses":[{"license":{"id":"` + licence + `"}}]}}`
	}
	both := func(name, first, second string) string {
		return `{"name":"` + name + `","licenses":[{"license":{"id":"` + first + `"}}],` +
			`"evidence":{"licenses":[{"license":{"id":"` + second + `"}}]}}`
	}
	for _, tt := range []struct{ components, want string }{
		{with("a", "MIT") + "," + with("b", "Apache-2.0"), ""},
		{`{"name":"github.com/tmthrgd/go-hex"}`, ""},
		{with("a", "MIT") + "," + with("b", "AGPL-3.0-only"), "b has the licences [AGPL-3.0-only]"},
		{both("d", "MIT", "Apache-2.0"), ""},
		{both("d", "MIT", "GPL-3.0-only"), "d has the licences [MIT GPL-3.0-only]"},
		{with("a", "MIT") + `,{"name":"partnerbilling/client"}`, ""},
		{`{"name":"c"}`, "c has the licences []"},
		{"", "no module found"},
	} {
		var d document
		if err := json.Unmarshal([]byte(`{"components":[`+tt.components+`]}`), &d); err != nil {
			t.Fatal(err)
		}
		err := list(io.Discard, d.Components)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.components, err, tt.want)
		}
	}
}
