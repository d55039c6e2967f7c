package models_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// Every table of the database has its retention, and every method that it names exists.
func TestEveryTableHasItsRetention(t *testing.T) {
	t.Parallel()
	var tables []string
	must(t, modelstest.Open(t).DB().NewRaw(`
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition`).Scan(t.Context(),
		&tables))
	var listed []string
	for _, r := range models.TableRetentions() {
		listed = append(listed, r.Table)
		if r.Keeps == "" && r.Removes == "" {
			t.Errorf("%s says neither what is removed nor what is kept", r.Table)
		}
		if (r.Removes == "") != (r.By == "") || (r.Removes == "") != (r.After == "") {
			t.Errorf("%s: removed %q after %q by %q", r.Table, r.Removes, r.After, r.By)
		}
		if _, ok := reflect.TypeFor[*models.Store]().MethodByName(r.By); r.By != "" && !ok {
			t.Errorf("%s: the Store has no method %s", r.Table, r.By)
		}
	}
	slices.Sort(tables)
	slices.Sort(listed)
	if diff := cmp.Diff(tables, listed); diff != "" {
		t.Errorf("tables (-database +retention):\n%s", diff)
	}
}

// OPERATIONS.md shows the retention of every table.
func TestRetentionIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../deploy/OPERATIONS.md")
	must(t, err)
	shown := regexp.MustCompile("(?m)^\\| `\\w+` \\|[^|]*\\|[^|]*\\|[^|]*\\|$").FindAllString(string(text), -1)
	var want []string
	for _, r := range models.TableRetentions() {
		after := r.After
		if r.Setting != "" {
			after += " (`" + r.Setting + "`)"
		}
		line := fmt.Sprintf("| `%s` | %s | %s | %s |", r.Table, r.Removes, after, r.Keeps)
		want = append(want, strings.Join(strings.Fields(line), " "))
	}
	for i := range shown {
		shown[i] = strings.Join(strings.Fields(shown[i]), " ")
	}
	shown = slices.DeleteFunc(shown, func(line string) bool { return strings.HasPrefix(line, "| `SVC_") })
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("deploy/OPERATIONS.md (-want +shown):\n%s\nall lines:\n%s", diff, strings.Join(want, "\n"))
	}
}

// A step removes whole batches: one, or several with at most limit rows together. It does not wait
// for a locked batch.
func TestOldBatchesGoInSmallSteps(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	site := modelstest.Site(t, store)
	for i, rows := range []int{3, 2, 2, 4, 9, 1} {
		done := modelstest.Submit(t, store, modelstest.Batch(site, fmt.Sprint("batch ", i), make([]string, rows)...))
		must(t, only3(store.CancelBatch(t.Context(), site.ID, done.Batch.Reference)))
		modelstest.SetClock(t, store, noon+models.Millis(i)+1)
	}
	modelstest.SetClock(t, store, noon.Add(models.BatchRetention)+100)
	left := func() (references []string) {
		t.Helper()
		must(t, store.DB().NewRaw("SELECT batch_reference FROM batches ORDER BY submitted_at").
			Scan(t.Context(), &references))
		var rows, counted int
		must(t, store.DB().NewRaw(
			"SELECT (SELECT count(*) FROM batch_rows), (SELECT coalesce(sum(row_count), 0) FROM batches)").
			Scan(t.Context(), &rows, &counted))
		if rows != counted {
			t.Errorf("%d rows of batches with %d", rows, counted)
		}
		return references
	}
	step := func(want int, remaining ...string) {
		t.Helper()
		n, err := store.DropOldBatches(t.Context(), 5)
		must(t, err)
		if diff := cmp.Diff(remaining, left()); n != want || diff != "" {
			t.Errorf("dropped %d, want %d; left (-want +got):\n%s", n, want, diff)
		}
	}
	tx, err := store.DB().BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "SELECT FROM batches WHERE batch_reference = 'batch 2' FOR UPDATE")
	must(t, err)

	step(5, "batch 2", "batch 3", "batch 4", "batch 5") // 3 and 2 rows
	step(5, "batch 2", "batch 4", "batch 5")            // 4 rows: 9 more would be too many
	step(5, "batch 2", "batch 5")                       // 9 rows of one batch
	step(5, "batch 2")
	step(0, "batch 2")
	must(t, tx.Rollback())
	step(5)
	step(0)
}
