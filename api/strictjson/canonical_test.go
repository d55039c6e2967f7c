package strictjson_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"partnerbilling/api/strictjson"
)

func TestCanonical(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"sorted":       {`{"b":1,"a":{"d":1,"c":2}}`, `{"a":{"c":2,"d":1},"b":1}`},
		"code points":  {`{"\ud83d\ude00":1,"\uffff":2,"z":3}`, "{\"z\":3,\"\uffff\":2,\"\U0001f600\":1}"},
		"prefix first": {`{"ab":1,"a":2,"":3}`, `{"":3,"a":2,"ab":1}`},
		"white space":  {" {\n\"a\" : [ 1 , 2 ] } ", `{"a":[1,2]}`},
		"escapes": {`{"a":"\u0041\/\u003c\"\\\u000a\u001f\u007f"}`,
			"{\"a\":\"A/<\\\"\\\\\\n\\u001f\u007f\"}"},
		"literals stay":     {`{"a":[1,1.0,1e0,1E0,-0,0.10]}`, `{"a":[1,1.0,1e0,1E0,-0,0.10]}`},
		"null stays":        {`{"a":null}`, `{"a":null}`},
		"no folding":        {"{\"e\u0301\":1,\"\u00e9\":2}", "{\"e\u0301\":1,\"\u00e9\":2}"},
		"order of an array": {`{"a":[2,1]}`, `{"a":[2,1]}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(strictjson.Canonical(mustParse(t, c.text))); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	if got := string(strictjson.Canonical(strictjson.Value{})); got != "null" {
		t.Errorf("absent is %s", got)
	}
}

func TestDiff(t *testing.T) {
	long := strings.Repeat("é", 40)
	for name, c := range map[string]struct {
		a, b string
		want []string
	}{
		"equal": {`{"a":1,"b":[{"c":2}]}`, `{ "b":[{"c":2}], "a":1 }`, nil},
		"amount": {`{"rows":[{"amount":1},{"amount":2}]}`, `{"rows":[{"amount":5},{"amount":2}]}`,
			[]string{"rows[0].amount"}},
		"literal":         {`{"a":1}`, `{"a":1.0}`, []string{"a"}},
		"kind":            {`{"a":"1"}`, `{"a":1}`, []string{"a"}},
		"bool":            {`{"a":true}`, `{"a":false}`, []string{"a"}},
		"null or absent":  {`{"a":null}`, `{}`, []string{"a"}},
		"container kind":  {`{"a":[]}`, `{"a":{}}`, []string{"a"}},
		"rows added":      {`{"rows":[1]}`, `{"rows":[1,2,3]}`, []string{"rows[1]", "rows[2]"}},
		"rows removed":    {`{"rows":[1,2]}`, `{"rows":[]}`, []string{"rows[0]", "rows[1]"}},
		"rows swapped":    {`{"rows":[1,2]}`, `{"rows":[2,1]}`, []string{"rows[0]", "rows[1]"}},
		"members both":    {`{"a":1,"c":1,"e":1}`, `{"b":1,"c":2,"d":1}`, []string{"a", "b", "c", "d", "e"}},
		"a whole subtree": {`{"a":{"b":{"c":[1,2]}}}`, `{}`, []string{"a"}},
		"other names": {`{"a b":1,"":2,"x.y":{"z":1},"\n":1}`, `{"x.y":{"z":2}}`,
			[]string{`[""]`, `["\n"]`, `["a b"]`, `["x.y"].z`}},
		"a very long name": {`{"` + long + `":1}`, `{}`, []string{`["` + strings.Repeat("é", 32) + `…"]`}},
		"nested arrays":    {`{"a":[[1,2],[3]]}`, `{"a":[[1,9],[3,4]]}`, []string{"a[0][1]", "a[1][1]"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := mustParse(t, c.a), mustParse(t, c.b)
			if diff := cmp.Diff(c.want, strictjson.Diff(a, b, 20)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.want, strictjson.Diff(b, a, 20)); diff != "" {
				t.Error("in the other direction:", diff)
			}
		})
	}
}

func TestDiffStopsAtMax(t *testing.T) {
	a := mustParse(t, `{"rows":[`+strings.Repeat("1,", 99)+`1]}`)
	b := mustParse(t, `{"rows":[`+strings.Repeat("2,", 99)+`2]}`)
	got := strictjson.Diff(a, b, 20)
	if len(got) != 20 || got[0] != "rows[0]" || got[19] != "rows[19]" {
		t.Errorf("got %d paths: %v", len(got), got)
	}
}

// tree is a JSON value that can be written in many ways.
type tree struct {
	literal  string // null, true, false or a number
	text     *string
	elements []tree
	names    []string // an object's, one for each element
}

func genTree(depth int) *rapid.Generator[tree] {
	return rapid.Custom(func(t *rapid.T) tree {
		kinds := 2
		if depth > 0 {
			kinds = 4
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			literals := []string{"null", "true", "false", "0", "1", "1.0", "-0", "1e2", "42"}
			return tree{literal: rapid.SampledFrom(literals).Draw(t, "literal")}
		case 1:
			s := genString().Draw(t, "string")
			return tree{text: &s}
		case 2:
			return tree{elements: rapid.SliceOfN(genTree(depth-1), 0, 4).Draw(t, "array")}
		default:
			return genObject(depth).Draw(t, "object")
		}
	})
}

func genObject(depth int) *rapid.Generator[tree] {
	return rapid.Custom(func(t *rapid.T) tree {
		names := rapid.SliceOfNDistinct(genString(), 0, 5, rapid.ID[string]).Draw(t, "names")
		if names == nil {
			names = []string{}
		}
		o := tree{names: names}
		for range names {
			o.elements = append(o.elements, genTree(depth-1).Draw(t, "member"))
		}
		return o
	})
}

func genString() *rapid.Generator[string] {
	return rapid.StringOfN(rapid.RuneFrom([]rune("abcé\"\\/<\n\u2028\u0301\uffff😀")), 0, 4, -1)
}

// write writes the tree with random order of members, white space and escapes.
func (x tree) write(t *rapid.T, b *strings.Builder) {
	space := func() { b.WriteString(rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "space")) }
	space()
	defer space()
	switch {
	case x.literal != "":
		b.WriteString(x.literal)
	case x.text != nil:
		writeString(t, b, *x.text)
	case x.names == nil:
		b.WriteByte('[')
		for i, e := range x.elements {
			if i > 0 {
				b.WriteByte(',')
			}
			e.write(t, b)
		}
		space()
		b.WriteByte(']')
	default:
		b.WriteByte('{')
		order := make([]int, len(x.names))
		for i := range order {
			order[i] = i
		}
		for i, j := range rapid.Permutation(order).Draw(t, "order") {
			if i > 0 {
				b.WriteByte(',')
			}
			space()
			writeString(t, b, x.names[j])
			space()
			b.WriteByte(':')
			x.elements[j].write(t, b)
		}
		space()
		b.WriteByte('}')
	}
}

func writeString(t *rapid.T, b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		escape := r < ' ' || r == '"' || r == '\\' || rapid.Bool().Draw(t, "escape")
		switch {
		case !escape:
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(b, `\u%04x\u%04X`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		case r == '\n' && rapid.Bool().Draw(t, "short"):
			b.WriteString(`\n`)
		default:
			fmt.Fprintf(b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
}

func (x tree) spelling(t *rapid.T) []byte {
	var b strings.Builder
	x.write(t, &b)
	return []byte(b.String())
}

func parseTree(t *rapid.T, x tree) strictjson.Value {
	text := x.spelling(t)
	v, err := strictjson.Parse(text)
	if err != nil {
		t.Fatalf("Parse(%s): %v", text, err)
	}
	return v
}

func TestCanonicalIgnoresSpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := genObject(3).Draw(t, "tree")
		a, b := parseTree(t, x), parseTree(t, x)
		if ca, cb := strictjson.Canonical(a), strictjson.Canonical(b); !bytes.Equal(ca, cb) {
			t.Fatalf("two spellings of one value:\n%s\n%s", ca, cb)
		}
		if paths := strictjson.Diff(a, b, 20); len(paths) != 0 {
			t.Fatalf("two spellings of one value differ at %v", paths)
		}
		again, err := strictjson.Parse(strictjson.Canonical(a))
		if err != nil || !bytes.Equal(strictjson.Canonical(again), strictjson.Canonical(a)) {
			t.Fatalf("the canonical form is not a fixed point: %v", err)
		}
	})
}

// equal reports whether two trees have the same parsed value.
func (x tree) equal(y tree) bool {
	if x.literal != y.literal || (x.text == nil) != (y.text == nil) ||
		(x.names == nil) != (y.names == nil) || len(x.elements) != len(y.elements) {
		return false
	}
	if x.text != nil && *x.text != *y.text {
		return false
	}
	for i := range x.elements {
		j := i
		if x.names != nil {
			if j = slices.Index(y.names, x.names[i]); j < 0 {
				return false
			}
		}
		if !x.elements[i].equal(y.elements[j]) {
			return false
		}
	}
	return true
}

// mutate changes at most one value of the tree.
func (x tree) mutate(t *rapid.T) tree {
	if len(x.elements) == 0 || rapid.IntRange(0, 3).Draw(t, "here") == 0 {
		return genTree(1).Draw(t, "other")
	}
	y := x
	y.elements = slices.Clone(x.elements)
	y.names = slices.Clone(x.names)
	i := rapid.IntRange(0, len(x.elements)-1).Draw(t, "index")
	if rapid.IntRange(0, 3).Draw(t, "drop") == 0 {
		y.elements = slices.Delete(y.elements, i, i+1)
		if y.names != nil {
			y.names = slices.Delete(y.names, i, i+1)
		}
		return y
	}
	y.elements[i] = x.elements[i].mutate(t)
	return y
}

func TestCanonicalShowsEveryChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inner := genTree(3).Draw(t, "tree")
		x := tree{names: []string{"x"}, elements: []tree{inner}}
		y := tree{names: []string{"x"}, elements: []tree{inner.mutate(t)}}
		a, b := parseTree(t, x), parseTree(t, y)
		same := bytes.Equal(strictjson.Canonical(a), strictjson.Canonical(b))
		if same != x.equal(y) {
			t.Fatalf("equal values: %v, equal canonical forms: %v\n%s\n%s",
				x.equal(y), same, strictjson.Canonical(a), strictjson.Canonical(b))
		}
		if paths := strictjson.Diff(a, b, 20); (len(paths) == 0) != same {
			t.Fatalf("equal canonical forms: %v, differing paths: %v", same, paths)
		}
	})
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed), []byte(`{"a":[1]}`))
	}
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, err := strictjson.Parse(x)
		if err != nil {
			return
		}
		once := strictjson.Canonical(a)
		again, err := strictjson.Parse(once)
		if err != nil || !bytes.Equal(strictjson.Canonical(again), once) {
			t.Fatalf("%q: canonical form %q is not a fixed point (%v)", x, once, err)
		}
		b, err := strictjson.Parse(y)
		if err != nil {
			return
		}
		if same := bytes.Equal(once, strictjson.Canonical(b)); same != (len(strictjson.Diff(a, b, 1)) == 0) {
			t.Fatalf("equal canonical forms: %v, but the differing paths say otherwise: %q %q", same, x, y)
		}
	})
}
