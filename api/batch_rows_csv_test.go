package api_test

import (
	"encoding/csv"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
)

func TestRowsAsCSV(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	chunk := b.submit(t, "b", "ada", `say "hi"`, "a,b", "é✨", "eve")
	b.finish(t, chunk, models.RowResult{Index: 0, Outcome: models.OutcomeSucceeded},
		models.RowResult{Index: 1, Outcome: models.OutcomeTimedOut},
		models.RowResult{Index: 2, Release: true, RetryAfter: time.Minute})
	b.finish(t, chunk, models.RowResult{Index: 1, Outcome: models.OutcomeSucceeded})
	a := b.Get(b.batch("b", "/rows")).Expect(200)
	if got := a.Header.Get("Content-Type"); got != "text/csv;charset=UTF-8" {
		t.Errorf("content type %q", got)
	}
	if got := a.Header.Get("Content-Disposition"); got != `attachment; filename="batch-b.csv"` {
		t.Errorf("disposition %s", got)
	}
	want := strings.Join([]string{
		"rowReference,customerReference,amount,state,outcome,correctedOutcome,settledAt,attempts,nextAttemptAt",
		fmt.Sprintf("row-0,ada,100,settled,succeeded,,%d,1,", noon),
		fmt.Sprintf(`row-1,"say ""hi""",101,settled,timedOut,succeeded,%d,1,`, noon),
		fmt.Sprintf(`row-2,"a,b",102,pending,,,,1,%d`, noon.Add(time.Minute)),
		"row-3,é✨,103,inProgress,,,,0,", // the customer is not linked, so there was no attempt
		"row-4,eve,104,inProgress,,,,0,",
		"",
	}, "\r\n")
	if diff := cmp.Diff(want, string(a.Body)); diff != "" {
		t.Error(diff)
	}
	golden(t, "batch-not-found", b.Get(b.batch("none", "/rows")).Expect(404))
}

func TestFormulasInCSVAreDefused(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	cells := map[string]string{
		"=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)", "=": "'=",
		`=HYPERLINK("x","y")`: `'=HYPERLINK("x","y")`,
		" =1":                 "' =1", "\u200d=1": "'\u200d=1", "\u00ad\u3164 +1": "'\u00ad\u3164 +1",
		"\u2800@x": "'\u2800@x",
		"\ufe0f-1": "'\ufe0f-1",
		"\u2003＝1": "'\u2003＝1", "\u200c": "\u200c", "\u00ada=1": "\u00ada=1", "\u00a0=1": "'\u00a0=1", "＝1": "'＝1",
		"＋1": "'＋1", "－1": "'－1", "＠x": "'＠x",
		"a=b": "a=b", "1-2": "1-2", "a@b.example": "a@b.example", "'x": "'x", " x": " x", " ": " ", "−1": "−1",
		"|x": "|x",
	}
	var rows, want []string
	for text, cell := range cells {
		rows = append(rows, fmt.Sprintf(`{"customerReference":%q,"rowReference":%q,"amount":1}`, text, text))
		want = append(want, cell)
	}
	b.Post(b.batches(""), `{"batchReference":"b","rows":[`+strings.Join(rows, ",")+`]}`).Expect(202)
	records, err := csv.NewReader(strings.NewReader(string(b.Get(b.batch("b", "/rows")).Expect(200).Body))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var references, customers []string
	for _, record := range records[1:] {
		references, customers = append(references, record[0]), append(customers, record[1])
	}
	if diff := cmp.Diff(want, references) + cmp.Diff(want, customers); diff != "" {
		t.Error(diff)
	}
}

// A cell stays one cell under every separator that a reader may guess.
func TestCellsOfCSVAreQuoted(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	cells := map[string]string{
		"a,b": `"a,b"`, "a;b": `"a;b"`, "a|b": `"a|b"`, `a"b`: `"a""b"`, "a\u2028b": "\"a\u2028b\"",
		`=a;"b"`: `"'=a;""b"""`, " a": `" a"`,
		"a b": "a b", "a.b": "a.b", "a/b": "a/b", "'a'": "'a'", "é": "é", "a:b": "a:b", "#": "#",
	}
	var rows, want []string
	for text, cell := range cells {
		rows = append(rows, fmt.Sprintf(`{"customerReference":%q,"rowReference":%q,"amount":1}`, text, text))
		want = append(want, cell+","+cell+",1,pending,,,,0,")
	}
	b.Post(b.batches(""), `{"batchReference":"b","rows":[`+strings.Join(rows, ",")+`]}`).Expect(202)
	lines := strings.Split(string(b.Get(b.batch("b", "/rows")).Expect(200).Body), "\r\n")
	for i := range want {
		if got, _, _ := strings.Cut(lines[i+1], ",pending"); got+",pending,,,,0," != want[i] {
			t.Errorf("got %s, want %s", lines[i+1], want[i])
		}
	}
}

// The file's name contains the reference and is safe in a header and on a disk.
func TestRowsFileName(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	for reference, want := range map[string]string{
		"2026-11":           `filename="batch-2026-11.csv"`,
		"2026/11 #7+é":      `filename="batch-2026_11 #7+_.csv"; filename*=UTF-8''batch-2026_11%20#7+%C3%A9.csv`,
		"...":               `filename="batch-....csv"`,
		`a"b\c:d*e?f<g>h|i`: `filename="batch-a_b_c_d_e_f_g_h_i.csv"`,
		"a'b;c$d`e&f":       `filename="batch-a_b_c_d_e_f.csv"`,
		"50%41":             `filename="batch-50_41.csv"; filename*=UTF-8''batch-50%2541.csv`,
		"a\u2028b":          `filename="batch-a_b.csv"`,
		"✨":                 `filename="batch-_.csv"; filename*=UTF-8''batch-%E2%9C%A8.csv`,
	} {
		b.submit(t, reference, "ada")
		if got := b.Get(b.batch(reference, "/rows")).Expect(200).
			Header.Get("Content-Disposition"); got != "attachment; "+want {
			t.Errorf("%s: %s, want %s", reference, got, want)
		}
	}
}
