package console

import (
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A table that is read, written and read again has the same rows.
func FuzzReadRows(f *testing.F) {
	for _, seed := range []string{
		"customerReference,rowReference,amount\nada,r1,5\n", "ada;r1;5\nrené;r2;6", "a\tb\tc", "\ufeffa,b,5",
		`"a,b"," c",5`,
		"amount,rowReference,customerReference,note\n5,r1,ada,x\n", "amount\n", "\"", ",,\n", "a\r\nb", "\u00a0a,b,c",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return // refused with the form
		}
		rows, err := readRows(text)
		if err != nil {
			return
		}
		again, err := readRows(writeRows(rows))
		if diff := cmp.Diff(rows, again, cmpopts.IgnoreFields(batchRow{}, "Line")); err != nil || diff != "" {
			t.Errorf("%q: %v, %s", text, err, diff)
		}
	})
}
