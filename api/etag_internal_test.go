package api

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKnownETags(t *testing.T) {
	for header, want := range map[string][]string{
		``:                    nil,
		`"a"`:                 {`"a"`},
		`W/"a"`:               {`"a"`},
		`"a", W/"b" ,"c"`:     {`"a"`, `"b"`, `"c"`},
		"\t,, \"a\" ,,W/\"\"": {`"a"`, `""`},
		`"a,b","c"`:           {`"a,b"`, `"c"`},
		`"*"`:                 {`"*"`},
		`a, "b"`:              nil,
		`"a", b, "c"`:         {`"a"`},
		`"a`:                  nil,
		`w/"a"`:               nil,
		`W/W/"a"`:             nil,
	} {
		var known knownETags
		known.add(header)
		if diff := cmp.Diff(want, known.tags); diff != "" || known.any {
			t.Errorf("%s: %s", header, diff)
		}
	}
}

func FuzzKnownETags(f *testing.F) {
	for _, seed := range []string{`*`, `"a", W/"b"`, `,,"`, `W/`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		var known knownETags
		known.add(header)
		for _, tag := range known.tags {
			if len(tag) < 2 || strings.Count(tag, `"`) != 2 || tag[0] != '"' || tag[len(tag)-1] != '"' ||
				!strings.Contains(header, tag) {
				t.Fatalf("%q is no tag of %q", tag, header)
			}
			if !known.has(tag) || !known.has("W/"+tag) {
				t.Fatalf("%q is not known", tag)
			}
		}
		if known.any && strings.TrimSpace(header) != "*" {
			t.Fatalf("%q is taken for a star", header)
		}
	})
}
