package models_test

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"

	"partnerbilling/models"
)

// The derivation of keys must never change: a new key for an old debit would debit it again.
func TestRailKeysStayAsTheyAre(t *testing.T) {
	t.Parallel()
	var site models.SiteID
	must(t, site.UnmarshalText([]byte("site_01932c07-0000-7000-8000-000000000001")))
	key := models.NewBatchKey(site, "2026/11 #7+é", 1).Row("row 1")
	if want := "r1_cbffef0144dc394a0d4444f57683362922719965d4b3099ce0205dfe88c8da3a"; key != want {
		t.Errorf("key %s", key)
	}
}

func TestRailKeysTellRowsApart(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile("^r1_[0-9a-f]{64}$")
	field := rapid.StringN(1, 20, -1)
	rapid.Check(t, func(t *rapid.T) {
		type row struct {
			site       models.SiteID
			batch, row string
			generation int
		}
		sites := []models.SiteID{{1}, {2}}
		draw := func(name string) row {
			return row{
				rapid.SampledFrom(sites).Draw(t, name+" site"), field.Draw(t, name+" batch"),
				field.Draw(t, name+" row"), rapid.IntRange(1, 12).Draw(t, name+" generation"),
			}
		}
		a, b := draw("a"), draw("b")
		keyA := models.NewBatchKey(a.site, a.batch, a.generation).Row(a.row)
		keyB := models.NewBatchKey(b.site, b.batch, b.generation).Row(b.row)
		if !form.MatchString(keyA) || (keyA == keyB) != (a == b) {
			t.Errorf("%+v has %s, %+v has %s", a, keyA, b, keyB)
		}
	})
}
