package csvtable

import (
	"encoding/csv"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// Every cell is read back by encoding/csv as it was, but for the mark of a formula, and stays one
// cell under the other separators that spreadsheets guess.
func FuzzCSV(f *testing.F) {
	for _, text := range []string{
		"ada", `say "hi"`, "a,b;c\td|e", "=1+1", "\u200b=1", " x", "a\r\nb", "", "＝1", "'", "\u0085", "\xff",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		cell := TextCell(text)
		if cell != text && cell != "'"+text {
			t.Fatalf("%q becomes %q", text, cell)
		}
		visible := strings.TrimLeftFunc(cell, IsInvisible)
		if first, _ := utf8.DecodeRuneInString(visible); visible != "" && strings.ContainsRune(formulaStarts, first) {
			t.Errorf("%q runs as a formula", cell)
		}
		reader := csv.NewReader(strings.NewReader(string(AppendRecord(nil, cell, "end"))))
		got, err := reader.Read()
		want := []string{strings.ReplaceAll(cell, "\r\n", "\n"), "end"}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v, %s", cell, err, diff)
		}
		if _, err := reader.Read(); !errors.Is(err, io.EOF) {
			t.Errorf("%q is several records", cell)
		}
		for _, separator := range ";\t|" {
			reader := csv.NewReader(strings.NewReader(string(AppendRecord(nil, cell))))
			reader.Comma = separator
			if got, err := reader.Read(); cell != "" && (err != nil || len(got) != 1) {
				t.Errorf("%q under %q: %q, %v", cell, separator, got, err)
			}
		}
	})
}
