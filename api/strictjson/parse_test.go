package strictjson_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"partnerbilling/api/strictjson"
)

func mustParse(t testing.TB, text string) strictjson.Value {
	t.Helper()
	v, err := strictjson.Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse(%.200q): %v", text, err)
	}
	return v
}

func TestParseAccepts(t *testing.T) {
	for name, text := range map[string]string{
		"empty object":       `{}`,
		"white space around": " \t\r\n{ } \n",
		"every kind":         `{"a":[null,true,false,-1.5e+3,"x",{}],"b":{"c":[]}}`,
		"surrogate pair":     `{"a":"\ud83d\ude00"}`,
		"noncharacter":       "{\"a\":\"\uffff\"}",
		"depth 32":           `{"a":` + strings.Repeat("[", 31) + strings.Repeat("]", 31) + `}`,
		"same key apart":     `{"a":{"k":1},"b":{"k":1},"k":1}`,
		"keys in two cases":  `{"a":1,"A":2}`,
		"empty key":          `{"":1}`,
		"BOM inside":         "{\"a\":\"\ufeff\"}",
	} {
		t.Run(name, func(t *testing.T) { mustParse(t, text) })
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, reason string }{
		"nothing":                 {``, "must be one JSON object"},
		"white space":             {" \n", "must be one JSON object"},
		"array":                   {`[]`, "must be one JSON object"},
		"string":                  {`"x"`, "must be one JSON object"},
		"null":                    {`null`, "must be one JSON object"},
		"number":                  {`1`, "must be one JSON object"},
		"not JSON":                {`nope`, "is not valid JSON in UTF-8"},
		"two objects":             {`{}{}`, "with nothing after it"},
		"text after":              {`{} x`, "is not valid JSON in UTF-8"},
		"BOM":                     {"\ufeff{}", "must not start with a byte order mark"},
		"cut":                     {`{"a":1`, "is not complete JSON"},
		"cut in a string":         {`{"a":"x`, "is not complete JSON"},
		"trailing comma":          {`{"a":1,}`, "is not valid JSON in UTF-8"},
		"single quotes":           {`{'a':1}`, "is not valid JSON in UTF-8"},
		"comment":                 {`{/**/}`, "is not valid JSON in UTF-8"},
		"NaN":                     {`{"a":NaN}`, "is not valid JSON in UTF-8"},
		"leading zero":            {`{"a":01}`, "is not valid JSON in UTF-8"},
		"plus":                    {`{"a":+1}`, "is not valid JSON in UTF-8"},
		"mismatch":                {`{"a":[}]`, "is not valid JSON in UTF-8"},
		"duplicate key":           {`{"a":1,"b":2,"a":1}`, "duplicate key"},
		"duplicate key, escaped":  {`{"a":1,"\u0061":2}`, "duplicate key"},
		"duplicate key, nested":   {`{"x":[{"a":1,"a":1}]}`, "duplicate key"},
		"lone high surrogate":     {`{"a":"\ud83d"}`, "is not valid JSON in UTF-8"},
		"lone low surrogate":      {`{"a":"\ude00x"}`, "is not valid JSON in UTF-8"},
		"surrogates swapped":      {`{"a":"\ude00\ud83d"}`, "is not valid JSON in UTF-8"},
		"lone surrogate in key":   {`{"\ud83d":1}`, "is not valid JSON in UTF-8"},
		"surrogate in UTF-8":      {"{\"a\":\"\xed\xa0\xbd\"}", "is not valid JSON in UTF-8"},
		"invalid UTF-8":           {"{\"a\":\"\xff\"}", "is not valid JSON in UTF-8"},
		"overlong UTF-8":          {"{\"a\":\"\xc0\xaf\"}", "is not valid JSON in UTF-8"},
		"UTF-16":                  {"\xff\xfe{\x00}\x00", "is not valid JSON in UTF-8"},
		"NUL":                     {"{\"a\":\"\x00\"}", "is not valid JSON in UTF-8"},
		"NUL after":               {"{}\x00", "is not valid JSON in UTF-8"},
		"NUL escaped":             {`{"a":"x\u0000"}`, "NUL"},
		"NUL escaped in key":      {`{"\u0000":1}`, "NUL"},
		"NUL escaped, deep":       {`{"a":[{"b":["\u0000"]}]}`, "NUL"},
		"control character":       {"{\"a\":\"\x1f\"}", "is not valid JSON in UTF-8"},
		"bad escape":              {`{"a":"\x"}`, "is not valid JSON in UTF-8"},
		"depth 33":                {`{"a":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `}`, "32 levels"},
		"depth 33, in objects":    {strings.Repeat(`{"a":`, 32) + `{}` + strings.Repeat("}", 32), "32 levels"},
		"very deep and cut":       {strings.Repeat(`{"a":`, 100000), "32 levels"},
		"commas only":             {strings.Repeat(",", 100000), "is not valid JSON in UTF-8"},
		"non-breaking space":      {"\u00a0{}", "is not valid JSON in UTF-8"},
		"vertical tab":            {"\v{}", "is not valid JSON in UTF-8"},
		"object with number name": {`{1:2}`, "is not valid JSON in UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := strictjson.Parse([]byte(c.text))
			var fault *strictjson.Error
			if !errors.As(err, &fault) || !strings.Contains(fault.Reason, c.reason) {
				t.Fatalf("Parse = %v, want %q", err, c.reason)
			}
			if v.Kind() != strictjson.Absent {
				t.Errorf("a refused text returned a value of kind %v", v.Kind())
			}
		})
	}
}

func TestParseDoesNotAliasItsInput(t *testing.T) {
	data := []byte(`{"name":"plain","escaped":"\u00e9"}`)
	v, err := strictjson.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] = '#'
	}
	if got := v.Get("name").Text() + v.Get("escaped").Text(); got != "plainé" {
		t.Errorf("got %q after the input was overwritten", got)
	}
}

func TestValueAccess(t *testing.T) {
	v := mustParse(t, `{"s":"a\n","n":-1.50e2,"t":true,"z":null,"l":[1,[2,3],{"k":4},5],"o":{"p":{"q":"r"}}}`)
	if got := v.Get("s").Text(); got != "a\n" {
		t.Errorf("string %q", got)
	}
	if got := v.Get("n").Text(); got != "-1.50e2" {
		t.Errorf("number %q", got)
	}
	if got := v.Get("t"); got.Kind() != strictjson.Bool || got.Text() != "true" {
		t.Errorf("bool %v %q", got.Kind(), got.Text())
	}
	if got := v.Get("z").Kind(); got != strictjson.Null {
		t.Errorf("null is %v", got)
	}
	got := v.Get("nothing")
	if got.Kind() != strictjson.Absent || got.Len() != 0 || got.Text() != "" ||
		got.Get("x").Kind() != strictjson.Absent {
		t.Errorf("absent is %v", got.Kind())
	}
	if got := v.Get("o").Get("p").Get("q").Text(); got != "r" {
		t.Errorf("nested %q", got)
	}
	if got := v.Get("s").Get("p").Kind(); got != strictjson.Absent {
		t.Errorf("a string has a member of kind %v", got)
	}
	var elements []string
	for i, e := range v.Get("l").Elements() {
		elements = append(elements, fmt.Sprint(i, ":", e.Kind(), ":", e.Len()))
	}
	if got := fmt.Sprint(elements, v.Get("l").Len(), v.Len()); got != "[0:3:0 1:5:2 2:6:1 3:3:0] 4 6" {
		t.Errorf("elements %s", got)
	}
	var names []string
	for name := range v.Members() {
		names = append(names, name)
	}
	if got := strings.Join(names, ""); got != "sntzlo" {
		t.Errorf("members %s", got)
	}
}

// checkAgainstStandardLibrary checks that Parse accepts only what encoding/json accepts, with the
// same meaning.
func checkAgainstStandardLibrary(t *testing.T, data []byte) {
	v, err := strictjson.Parse(data)
	if err != nil {
		return
	}
	var want any
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	if err := decoder.Decode(&want); err != nil {
		t.Fatalf("accepted %q, but encoding/json returned %v", data, err)
	}
	if !equalToStandard(v, want) {
		t.Fatalf("%q means %v to encoding/json, here %s", data, want, strictjson.Canonical(v))
	}
}

func equalToStandard(v strictjson.Value, want any) bool {
	switch want := want.(type) {
	case nil:
		return v.Kind() == strictjson.Null
	case bool:
		return v.Kind() == strictjson.Bool && v.Text() == fmt.Sprint(want)
	case json.Number:
		return v.Kind() == strictjson.Number && v.Text() == string(want)
	case string:
		return v.Kind() == strictjson.String && v.Text() == want
	case []any:
		for i, e := range v.Elements() {
			if i >= len(want) || !equalToStandard(e, want[i]) {
				return false
			}
		}
		return v.Kind() == strictjson.Array && v.Len() == len(want)
	case map[string]any:
		for name, member := range v.Members() {
			if w, ok := want[name]; !ok || !equalToStandard(member, w) {
				return false
			}
		}
		return v.Kind() == strictjson.Object && v.Len() == len(want)
	}
	return false
}

var seeds = []string{
	`{}`, `{"a":1}`, `{"a":[{"b":"\ud83d\ude00"},null,-0.0e-1]}`, `{"a":1,"a":2}`, `[1]`, "\ufeff{}", `{"a":"\u0000"}`,
	`{"\u00e9":{"x":[[],[{}]]}}`, `{"a":"<>&\u2028\/"}`, `{"a":01}`, `{"a":"\ud800"}`, "{\"a\":\"\xff\"}",
	` {"b" : true } `,
}

func FuzzParse(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := string(data)
		checkAgainstStandardLibrary(t, data)
		if string(data) != before {
			t.Fatal("Parse changed its input")
		}
	})
}

func batch(rows int) []byte {
	var b strings.Builder
	b.WriteString(`{"batchReference":"2026/11 #7","rows":[`)
	for i := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"customerReference":"customer-%06d-tenant-reference","rowReference":"row-%d","amount":%d}`,
			i, i, 100+i)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func BenchmarkParse(b *testing.B) {
	data := batch(1000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := strictjson.Parse(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCanonical(b *testing.B) {
	v := mustParse(b, string(batch(1000)))
	b.ReportAllocs()
	for b.Loop() {
		strictjson.Canonical(v)
	}
}

func BenchmarkDiffEqual(b *testing.B) {
	x, y := mustParse(b, string(batch(1000))), mustParse(b, string(batch(1000)))
	b.ReportAllocs()
	for b.Loop() {
		if len(strictjson.Diff(x, y, 20)) != 0 {
			b.Fatal("differs")
		}
	}
}
