package strictjson_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/strictjson"
)

var errTooShort = errors.New("must have at least 3 characters")

func atLeastThree(s string) error {
	if len(s) < 3 {
		return errTooShort
	}
	return nil
}

func TestDecodeBatch(t *testing.T) {
	v := mustParse(t, `{"batchReference":"b-1","note":"ignored","rows":[{"rowReference":"r-1","amount":5},
		{"rowReference":"r-2","amount":7,"more":{"Amount":1}}]}`)
	o := strictjson.NewObject(v, "batchReference", "rows")
	reference := o.RequiredString("batchReference", atLeastThree)
	var rows []string
	for i, row := range o.RequiredObjects("rows", 1, 1000, "rowReference", "amount") {
		reference, amount := row.RequiredString("rowReference"), row.RequiredInt("amount", strictjson.AtLeast(1))
		rows = append(rows, fmt.Sprint(i, " ", reference, " ", amount))
	}
	if got := fmt.Sprint(reference, rows, len(o.Faults())); got != "b-1[0 r-1 5 1 r-2 7] 0" {
		t.Errorf("got %s", got)
	}
}

func TestDecodeCollectsEveryFault(t *testing.T) {
	v := mustParse(t, `{"name":"x","count":1.5,"when":null,
		"items":[{"id":null},7,{"id":"abc","amount":0,"tags":["a",1]}],"extra":[],"list":{}}`)
	o := strictjson.NewObject(v, "name", "count", "when", "items", "extra", "list", "gone")
	o.RequiredString("name", atLeastThree)
	o.RequiredInt("count")
	o.RequiredInt("when")
	o.RequiredString("gone")
	o.OptionalStrings("list", 3)
	o.OptionalObject("extra")
	for _, item := range o.RequiredObjects("items", 4, 10, "id", "amount", "tags") {
		item.RequiredString("id")
		item.RequiredInt("amount", strictjson.Between(1, 9))
		item.OptionalStrings("tags", 1)
		item.Invalid("id", "must be new")
	}
	want := []strictjson.Fault{
		{strictjson.Invalid, "name", "must have at least 3 characters"},
		{strictjson.Invalid, "count", "must be an integer"},
		{strictjson.Missing, "when", "is required"},
		{strictjson.Missing, "gone", "is required"},
		{strictjson.Invalid, "list", "must be an array"},
		{strictjson.Invalid, "extra", "must be an object"},
		{strictjson.Invalid, "items", "must have 4 to 10 elements"},
		{strictjson.Missing, "items[0].id", "is required"},
		{strictjson.Missing, "items[0].amount", "is required"},
		{strictjson.Invalid, "items[0].id", "must be new"},
		{strictjson.Invalid, "items[1]", "must be an object"},
		{strictjson.Invalid, "items[2].amount", "must be from 1 to 9"},
		{strictjson.Invalid, "items[2].tags", "must have 0 to 1 elements"},
		{strictjson.Invalid, "items[2].id", "must be new"},
	}
	if diff := cmp.Diff(want, o.Faults()); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeNestedPaths(t *testing.T) {
	v := mustParse(t,
		`{"lineItems":[{},{"addOns":{"modifiers":["m",2],"customizations":1}}],"top":{"inner":{"n":"x"}}}`)
	o := strictjson.NewObject(v, "lineItems", "top")
	for _, item := range o.OptionalObjects("lineItems", 0, 100, "addOns") {
		if addOns, ok := item.OptionalObject("addOns", "modifiers", "customizations"); ok {
			addOns.OptionalStrings("modifiers", 10)
			addOns.OptionalString("customizations")
		}
	}
	top, _ := o.OptionalObject("top", "inner")
	inner, _ := top.OptionalObject("inner", "n")
	inner.OptionalInt("n")
	var targets []string
	for _, fault := range o.Faults() {
		targets = append(targets, fault.Target)
	}
	want := []string{"lineItems[1].addOns.modifiers[1]", "lineItems[1].addOns.customizations", "top.inner.n"}
	if diff := cmp.Diff(want, targets); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeIntegers(t *testing.T) {
	const notInteger, outOfRange = "must be an integer", "must be an integer from -9007199254740991 to 9007199254740991"
	for literal, want := range map[string]string{
		`0`: "", `1`: "", `-1`: "", `9007199254740991`: "", `-9007199254740991`: "",
		`9007199254740992`: outOfRange, `-9007199254740992`: outOfRange, `9223372036854775808`: outOfRange,
		strings.Repeat("9", 10000): outOfRange,
		`1.0`:                      notInteger, `1e2`: notInteger, `1E2`: notInteger, `"1"`: notInteger,
		`-0`:   notInteger,
		`true`: notInteger, `[1]`: notInteger, `{}`: notInteger, `1.5`: notInteger,
	} {
		o := strictjson.NewObject(mustParse(t, `{"n":`+literal+`}`), "n")
		_, present := o.OptionalInt("n")
		got := ""
		if len(o.Faults()) > 0 {
			got = o.Faults()[0].Message
		}
		if got != want || !present {
			t.Errorf("%.30s: fault %q, present %v; want %q", literal, got, present, want)
		}
	}
}

// The message for an integer out of range names the range of its field, if a check knows it.
func TestDecodeIntegersOutOfRange(t *testing.T) {
	for literal, want := range map[string][]string{
		`9007199254740992`: {"must be an integer from 1 to 9007199254740991", "must be from 0 to 9", "must be odd"},
		strings.Repeat("9", 100): {"must be an integer from 1 to 9007199254740991", "must be from 0 to 9",
			"must be an integer from -9007199254740991 to 9007199254740991"},
		`-9007199254740992`:            {"must be at least 1", "must be from 0 to 9", "must be odd"},
		"-" + strings.Repeat("9", 100): {"must be at least 1", "must be from 0 to 9", "must be odd"},
	} {
		var got []string
		for _, check := range []func(int64) error{strictjson.AtLeast(1), strictjson.Between(0, 9), checkOdd} {
			o := strictjson.NewObject(mustParse(t, `{"n":`+literal+`}`), "n")
			if n, present := o.OptionalInt("n", check); n != 0 || !present {
				t.Errorf("%.30s: %d, present %v", literal, n, present)
			}
			got = append(got, o.Faults()[0].Message)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.30s (-want +got):\n%s", literal, diff)
		}
	}
}

func checkOdd(n int64) error {
	if n%2 == 0 {
		return errors.New("must be odd")
	}
	return nil
}

func TestDecodeAbsentAndNull(t *testing.T) {
	for _, text := range []string{`{}`, `{"s":null,"n":null,"o":null,"a":null,"l":null}`} {
		o := strictjson.NewObject(mustParse(t, text), "s", "n", "o", "a", "l")
		_, s := o.OptionalString("s")
		_, n := o.OptionalInt("n")
		_, sub := o.OptionalObject("o")
		list := o.OptionalStrings("l", 1)
		for range o.OptionalObjects("a", 1, 2) {
			t.Error("an absent array has elements")
		}
		if s || n || sub || list != nil || len(o.Faults()) > 0 {
			t.Errorf("%s: %v %v %v %v %v", text, s, n, sub, list, o.Faults())
		}
		for range o.RequiredObjects("a", 1, 2) {
			t.Error("an absent array has elements")
		}
		want := []strictjson.Fault{{strictjson.Missing, "a", "is required"}}
		if diff := cmp.Diff(want, o.Faults()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestDecodeKeyCase(t *testing.T) {
	for text, want := range map[string]string{
		`{"Rows":[]}`:                          "rows",
		`{"rows":[],"ROWS":[]}`:                "rows",
		"{\"row\u017f\":[]}":                   "rows", // long s folds to s
		"{\"rows\":[{\"\u212aind\":1}]}":       "rows[0].kind",
		`{"rows":[{},{"KIND":1}]}`:             "rows[1].kind",
		`{"rows":[{"other":{"KIND":1}}]}`:      "",
		`{"rows ":[],"row":1,"rowss":2}`:       "",
		"{\"rows\u0301\":[],\"r\uff4fws\":[]}": "",
	} {
		o := strictjson.NewObject(mustParse(t, text), "rows")
		o.RequiredString("gone")
		for _, row := range o.OptionalObjects("rows", 0, 9, "kind") {
			row.OptionalInt("kind")
		}
		faults := o.Faults()
		got := ""
		if faults[0].Kind == strictjson.Malformed {
			got = faults[0].Target
		}
		if got != want {
			t.Errorf("%s: %q, want %q (%v)", text, got, want, faults)
		}
		if got != "" && len(faults) != 1 {
			t.Errorf("%s: other faults besides a malformed key: %v", text, faults)
		}
	}
}

func TestDecodeReportsAHundredFaults(t *testing.T) {
	v := mustParse(t, `{"rows":[`+strings.Repeat(`{},`, 500)+`{"Amount":1}]}`)
	for known, want := range map[string]struct {
		n    int
		kind strictjson.FaultKind
	}{"other": {100, strictjson.Missing}, "amount": {1, strictjson.Malformed}} {
		o := strictjson.NewObject(v, "rows")
		for _, row := range o.RequiredObjects("rows", 1, 1000, known) {
			row.RequiredInt(known)
		}
		if got := o.Faults(); len(got) != want.n || got[0].Kind != want.kind {
			t.Errorf("%s: %d faults, the first %v", known, len(got), got[0])
		}
	}
}

func TestDecodeIgnoresElementsPastMaximum(t *testing.T) {
	o := strictjson.NewObject(mustParse(t, `{"rows":[{},{},{}],"tags":["a","b","c"]}`), "rows", "tags")
	n := 0
	for range o.RequiredObjects("rows", 1, 2) {
		n++
	}
	if tags := o.OptionalStrings("tags", 2); n != 2 || len(tags) != 2 || len(o.Faults()) != 2 {
		t.Errorf("%d rows, %v, %v", n, tags, o.Faults())
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := strictjson.Parse(data)
		if err != nil {
			return
		}
		o := strictjson.NewObject(v, "a", "b")
		o.RequiredInt("a")
		o.OptionalString("b")
		o.OptionalStrings("a", 2)
		for _, e := range o.OptionalObjects("a", 0, 2, "b") {
			e.RequiredString("b")
		}
		for _, fault := range o.Faults() {
			if fault.Target == "" || fault.Message == "" || fault.Kind == 0 {
				t.Fatalf("an empty fault: %v", fault)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	v := mustParse(b, string(batch(1000)))
	b.ReportAllocs()
	for b.Loop() {
		o := strictjson.NewObject(v, "batchReference", "rows")
		o.RequiredString("batchReference")
		for _, row := range o.RequiredObjects("rows", 1, 1000, "customerReference", "rowReference", "amount") {
			row.RequiredString("customerReference")
			row.RequiredString("rowReference")
			row.RequiredInt("amount", strictjson.AtLeast(1))
		}
		if len(o.Faults()) > 0 {
			b.Fatal(o.Faults())
		}
	}
}
