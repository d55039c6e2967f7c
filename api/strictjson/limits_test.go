package strictjson_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"partnerbilling/api/strictjson"
)

// count returns the number of values of a document.
func count(v strictjson.Value) int {
	n := 1
	for _, member := range v.Members() {
		n += count(member)
	}
	for _, element := range v.Elements() {
		n += count(element)
	}
	return n
}

func TestParseCountsValues(t *testing.T) {
	for text, values := range map[string]int{
		`{}`:                                1,
		`{"a":null}`:                        2,
		`{"a":[],"b":{}}`:                   3,
		`{"a":[ ],"b":{ },"c":[[[]]]}`:      6,
		`{"a":[1,"x",true,{"b":2}]}`:        7,
		`{"a":",{[\",{[","b":"[","c":"\\"}`: 4,
		`{"a,{[":1}`:                        2,
		" {\n\"a\" : [ 1 , 2 ] } ":          4,
	} {
		if _, err := strictjson.ParseWithin([]byte(text), strictjson.Limits{Values: values}); err != nil {
			t.Errorf("%s within %d: %v", text, values, err)
		}
		_, err := strictjson.ParseWithin([]byte(text), strictjson.Limits{Values: values - 1})
		var fault *strictjson.Error
		if values > 1 && (!errors.As(err, &fault) || fault.Reason != fmt.Sprintf("has more than %d values", values-1)) {
			t.Errorf("%s within %d: %v", text, values-1, err)
		}
	}
}

func TestParseCountsAnyValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := genObject(3).Draw(t, "tree").spelling(t)
		v, err := strictjson.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		n := count(v)
		if _, err := strictjson.ParseWithin(text, strictjson.Limits{Values: n}); err != nil {
			t.Fatalf("%s has %d values: %v", text, n, err)
		}
		if n == 1 {
			return
		}
		if _, err := strictjson.ParseWithin(text, strictjson.Limits{Values: n - 1}); err == nil {
			t.Fatalf("%s has %d values, and not one less", text, n)
		}
	})
}

// allocation returns the number of bytes that do allocates. It must not run in parallel with other
// tests.
func allocation(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A text with too many values is refused before anything is allocated.
func TestTooManyValuesAllocateNothing(t *testing.T) {
	const limit, size = 32_768, 1 << 20
	for name, text := range map[string]string{
		"numbers":           `{"a":[` + strings.Repeat("1,", size/2) + `1]}`,
		"empty objects":     `{"a":[` + strings.Repeat("{},", size/3) + `{}]}`,
		"members":           `{"a":[` + strings.Repeat(`{"a":1},`, size/8) + `1]}`,
		"spread out":        `{"a":[` + strings.Repeat("1 ,  ", size/5) + `1]}`,
		"commas and no end": `{"a":[` + strings.Repeat("1,", size/2),
	} {
		t.Run(name, func(t *testing.T) {
			data := []byte(text)
			var err error
			allocated := allocation(func() { _, err = strictjson.ParseWithin(data, strictjson.Limits{Values: limit}) })
			if err == nil || allocated > 64<<10 { // the runtime allocates a little at times
				t.Errorf("%v, allocated %d bytes", err, allocated)
			}
		})
	}
}

// A document within its limit takes little more memory than its text.
func TestParsedDocumentIsSmall(t *testing.T) {
	data := []byte(`{"a":[` + strings.Repeat("1,", 32_000) + `1]}`)
	allocated := allocation(func() {
		if _, err := strictjson.ParseWithin(data, strictjson.Limits{Values: 32_768}); err != nil {
			t.Error(err)
		}
	})
	if limit := uint64(len(data) + 40*32_003); allocated > limit {
		t.Errorf("%d bytes, want at most %d", allocated, limit)
	}
}

// decodeLine decodes a field, an object and an array of objects, like a payment intent.
func decodeLine(t *testing.T, text string, limit int) []strictjson.Fault {
	t.Helper()
	v, err := strictjson.ParseWithin([]byte(text), strictjson.Limits{UnknownBytes: limit})
	if err != nil {
		t.Fatal(err)
	}
	o := strictjson.NewObject(v, "amount", "lineItems")
	o.OptionalInt("amount", strictjson.AtLeast(1))
	for _, line := range o.OptionalObjects("lineItems", 0, 2, "addOns") {
		if addOns, ok := line.OptionalObject("addOns", "modifiers"); ok {
			addOns.OptionalStrings("modifiers", 1)
		}
	}
	return o.Faults()
}

func TestUnknownFieldsAreBounded(t *testing.T) {
	const limit = 20
	excess := func(field string) []string {
		return []string{field + " is an unknown field; unknown fields may hold at most 20 bytes in total"}
	}
	for text, want := range map[string][]string{
		`{"amount":1}`:                               nil,
		`{"note":"aaaaaaaaaaa"}`:                     nil, // 20 bytes
		`{"note" : "aaaaaaaaa"}`:                     nil,
		`{"note":"aaaaaaaaaaaa"}`:                    excess("note"),
		`{"note" : "aaaaaaaaaa"}`:                    excess("note"),
		`{"n\u006fte":"aaaaaa"}`:                     nil, // as it was written
		`{"n\u006fte":"aaaaaaa"}`:                    excess("note"),
		`{"note":"\u0061aaaaaa"}`:                    excess("note"),
		`{"a":[1,{"b":[2,{}]}]}`:                     nil,
		`{"a":[1,{"b":[23,{}]}]}`:                    excess("a"),
		`{"a":-1.5e300,"b":null}`:                    nil,
		`{"amount":1,"a":true,"c":{},"b":false}`:     excess("a"),
		`{"b":{"a":1},"lineItems":[],"a":{"a":1}}`:   excess("b"),
		`{"a b":"aaaaaaaaaaaaaaaaaaa"}`:              excess(`["a b"]`),
		`{"lineItems":[{"x":1},{"y":1},{"z":1}]}`:    {"lineItems must have 0 to 2 elements"},
		`{"lineItems":[{"x":11111},{"y":11111111}]}`: excess("lineItems[0].x"),
		`{"lineItems":[{},{"addOns":{"y":"aaaaaaaa","modifiers":[]},"x":"aa"}]}`: excess("lineItems[1].addOns.y"),
		`{"lineItems":[{},{"x":"aa","addOns":{"y":"aaaaaaaa","modifiers":[]}}]}`: excess("lineItems[1].x"),
		`{"lineItems":[{"x":1111111111}],"y":1111}`:                              excess("lineItems[0].x"),
		`{"y":1111,"lineItems":[{"x":1111111111}]}`:                              excess("y"),
		`{"amount":0,"note":"aaaaaaaaaaaa"}`: append(
			excess("note"), "amount must be at least 1"),
		`{"Amount":0,"note":"aaaaaaaaaaaa"}`: {
			"amount must be written with exactly this capitalisation",
		},
	} {
		var got []string
		for _, f := range decodeLine(t, text, limit) {
			got = append(got, f.Target+" "+f.Message)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", text, diff)
		}
		if len(want) > 0 && strings.Contains(want[0], "known field") {
			if more := decodeLine(t, text, 0); len(more) != len(want)-1 {
				t.Errorf("%s without a limit: %v", text, more)
			}
		}
	}
}

func TestUnknownFieldsCountTowardsMaxFaults(t *testing.T) {
	v, err := strictjson.ParseWithin([]byte(`{"note":"aaa"}`), strictjson.Limits{UnknownBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	o := strictjson.NewObject(v)
	for i := range 2 * strictjson.MaxFaults {
		o.Invalid(fmt.Sprint("f", i), "is wrong")
	}
	faults := o.Faults()
	if len(faults) != strictjson.MaxFaults || faults[0].Target != "note" || faults[99].Target != "f98" {
		t.Errorf("%d faults, from %v to %v", len(faults), faults[0], faults[len(faults)-1])
	}
}
