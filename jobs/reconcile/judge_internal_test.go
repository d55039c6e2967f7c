package reconcile

import (
	"fmt"
	"testing"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

func TestCompareEntry(t *testing.T) {
	t.Parallel()
	entry := models.LedgerEntry{
		Amount: 100, Currency: "AUD", BatchReference: "b", RowReference: "r", AgreementID: "agr",
	}
	refused := rail.Result{Status: rail.Refused, Reason: rail.Declined}
	forgotten := entry
	forgotten.AgreementID = ""
	held := rail.Particulars{AgreementID: "agr", Amount: 100, Currency: "AUD"}
	other := func(change func(*rail.Particulars)) rail.Result {
		p := held
		change(&p)
		return rail.Result{Status: rail.Succeeded, Held: p}
	}
	for name, tt := range map[string]struct {
		entry  models.LedgerEntry
		answer rail.Result
		want   models.DifferenceKind
	}{
		"the same": {entry, rail.Result{Status: rail.Succeeded, Held: held}, ""},
		"another amount": {entry, other(func(p *rail.Particulars) { p.Amount++ }),
			models.DifferenceParticulars},
		"another currency": {entry, other(func(p *rail.Particulars) { p.Currency = "NZD" }),
			models.DifferenceParticulars},
		"another account": {entry, other(func(p *rail.Particulars) { p.AgreementID = "x" }),
			models.DifferenceParticulars},
		"an account that is unknown": {forgotten, other(func(p *rail.Particulars) { p.AgreementID = "x" }), ""},
		"refused":                    {entry, refused, models.DifferenceDenied},
		"cancelled":                  {entry, rail.Result{Status: rail.Cancelled}, models.DifferenceDenied},
		"never seen":                 {entry, rail.Result{Status: rail.NotFound}, models.DifferenceDenied},
		"not decided":                {entry, rail.Result{Held: held}, models.DifferenceInFlight},
		"no answer":                  {entry, rail.Result{}, models.DifferenceInFlight},
	} {
		got, detail := compareEntry(tt.entry, tt.answer)
		if got != tt.want || (detail == "") != (got == "") {
			t.Errorf("%s: %q (%s), want %q", name, got, detail, tt.want)
		}
	}
}

// The memory of a comparison is bounded, and has the latest keys at any time.
func TestRecentKeysAreBounded(t *testing.T) {
	t.Parallel()
	var keys recentKeys
	for i := range 3*maxRecent + 7 {
		keys.add(fmt.Sprint(i))
		if n := len(keys.newer) + len(keys.older); n > 2*maxRecent {
			t.Fatalf("%d keys after %d", n, i)
		}
	}
	for _, i := range []int{3*maxRecent + 6, 3 * maxRecent, 2*maxRecent + 7} {
		if !keys.has(fmt.Sprint(i)) {
			t.Errorf("key %d is forgotten", i)
		}
	}
	if keys.has("0") || keys.has("another") {
		t.Error("a key is known that was added long ago, or never")
	}
}

func TestOnePerKey(t *testing.T) {
	t.Parallel()
	all := []models.Difference{
		{RailKey: "a", Kind: models.DifferenceUnknown}, {RailKey: "b"}, {RailKey: "a", Kind: models.DifferenceInFlight},
	}
	got := onePerKey(all)
	if len(got) != 2 || got[0] != all[0] || got[1] != all[1] {
		t.Errorf("%+v", got)
	}
}
