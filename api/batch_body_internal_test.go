package api

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"partnerbilling/api/strictjson"
	"partnerbilling/models"
)

func parse(t interface{ Fatalf(string, ...any) }, text string) strictjson.Value {
	v, err := strictjson.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestBatchExtras(t *testing.T) {
	row := func(extra string) string {
		return `{"customerReference":"c","rowReference":"r","amount":1` + extra + `}`
	}
	for text, want := range map[string]string{
		`"rows":[` + row("") + `,` + row("") + `]`:                  ``,
		`"rows":[` + row("") + `],"b":1.0,"a":[{}]`:                 `{"a":[{}],"b":1.0,"rows":[]}`,
		`"rows":[` + row("") + `,` + row(`,"x":null`) + `]`:         `{"rows":[{},{"x":null}]}`,
		`"rows":[` + row(`,"x":1`) + `,` + row("") + `],"rows ":{}`: `{"rows":[{"x":1}],"rows ":{}}`,
	} {
		got, err := batchExtras(parse(t, `{"batchReference":"b",`+text+`}`))
		if err != nil || string(got) != want || (got == nil) != (want == "") {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
}

// genUnknown generates unknown members, at most depth levels deep.
func genUnknown(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b\\\"", "é", "", "x.y", "extra"}), 0, 3,
			rapid.ID[string]).Draw(t, "names")
		var b strings.Builder
		for _, name := range names {
			value := rapid.SampledFrom([]string{"null", "1", "1.0", "-0", "true", `"v"`, `"\u00e9"`, "[1,[]]", "{}"}).
				Draw(t, "value")
			if levels := rapid.SampledFrom([]int{0, 0, 0, depth}).Draw(t, "levels"); levels > 0 {
				value = strings.Repeat("[", levels) + strings.Repeat("]", levels)
			}
			fmt.Fprintf(&b, `,"%s":%s`, name, value)
		}
		return b.String()
	})
}

// The stored body equals the submitted body, with all its unknown fields.
func TestStoredBodyIsTheBody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stored models.StoredSubmission
		var rows []string
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			row := models.NewRow{
				CustomerReference: rapid.StringN(1, 9, -1).Draw(t, "customer"),
				RowReference:      rapid.StringN(1, 9, -1).Draw(t, "row"),
				Amount:            models.Amount(rapid.Int64Range(1, int64(models.MaxAmount)).Draw(t, "amount")),
			}
			row.CustomerReference = strings.ReplaceAll(row.CustomerReference, "\x00", "0")
			row.RowReference = strings.ReplaceAll(row.RowReference, "\x00", "0")
			stored.Rows = append(stored.Rows, row)
			rows = append(rows, fmt.Sprintf(`{"amount":%d,"customerReference":%s,"rowReference":%s%s}`, row.Amount,
				appendQuoted(nil, row.CustomerReference), appendQuoted(nil, row.RowReference),
				genUnknown(strictjson.MaxDepth-3).Draw(t, "of the row")))
		}
		body := parse(t, fmt.Sprintf(`{"rows":[%s],"batchReference":"b/é"%s}`, strings.Join(rows, ","),
			genUnknown(strictjson.MaxDepth-1).Draw(t, "of the batch")))
		var err error
		if stored.Extras, err = batchExtras(body); err != nil {
			t.Fatal(err)
		}
		again, err := storedBody(&stored, "b/é")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(strictjson.Canonical(body), strictjson.Canonical(again)) {
			t.Fatalf("stored %s\nof     %s", strictjson.Canonical(again), strictjson.Canonical(body))
		}
	})
}
