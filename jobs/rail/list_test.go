package rail

import (
	"testing"

	"partnerbilling/models"
)

// A list begins after the position of the query, in the order of time and then key, and ends before
// its end.
func TestListQuerySelects(t *testing.T) {
	t.Parallel()
	q := ListQuery{From: 10, To: 20, AfterKey: "m"}
	for _, test := range []struct {
		at   models.Millis
		key  string
		want bool
	}{
		{9, "z", false}, {10, "l", false}, {10, "m", false}, {10, "n", true},
		{11, "a", true}, {19, "a", true}, {20, "a", false}, {21, "a", false},
	} {
		if got := q.Selects(ListedDebit{Key: test.key, DebitedAt: test.at}); got != test.want {
			t.Errorf("debit %q at %d is selected: %t, want %t", test.key, test.at, got, test.want)
		}
	}
	q.AfterKey = ""
	if !q.Selects(ListedDebit{Key: "a", DebitedAt: 10}) {
		t.Error("without a key, the debits of the first millisecond are not selected")
	}
}
