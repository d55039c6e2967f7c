package models_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// ParseColour and the column's CHECK accept the same texts, but for upper-case digits, which
// ParseColour lowers.
func TestColours(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	tests := []struct {
		text string
		want models.Colour // "" for ErrColour
	}{
		{"#1f5fae", "#1f5fae"}, {"#000000", "#000000"}, {"#FFFF99", "#ffff99"},
		{"", ""}, {"none", ""}, {"1f5fae", ""}, {"#1f5fa", ""}, {"#1f5faee", ""}, {"#fff", ""}, {"#1f5fag", ""},
		{"#1f5fae ", ""}, {"#1f5fae\n", ""}, {"\n#1f5fae", ""}, {"red", ""}, {"rgb(1,2,3)", ""}, {"#1f5f\u00e4", ""},
		{"#1f5fae;}*{", ""},
	}
	for _, tt := range tests {
		got, err := models.ParseColour(tt.text)
		if got != tt.want || errors.Is(err, models.ErrColour) != (tt.want == "") {
			t.Errorf("ParseColour(%q) = %q, %v", tt.text, got, err)
		}
		_, err = store.DB().ExecContext(t.Context(), "UPDATE organisations SET colour = ?", tt.text)
		if accepted := tt.want != "" && string(tt.want) == tt.text; accepted != (err == nil) {
			t.Errorf("the column takes %q: %v", tt.text, err)
		}
		if tt.want != "" {
			must(t, store.SetOrganisationColour(t.Context(), site.OrganisationID, tt.want))
		}
	}
}

// An organisation has no colour until an operator sets one. Each change is in the audit log with
// the colour before it.
func TestSetOrganisationColour(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	plain, err := store.CreateOrganisation(t.Context(), "Hill Water")
	must(t, err)
	adding := actBy(t.Context(), "jane", models.ActAddOrganisation)
	coloured, err := store.CreateOrganisationWithColour(adding, "Harbour Power", "#1f5fae")
	must(t, err)
	colours := func(want ...models.Colour) {
		t.Helper()
		var got []models.Colour
		for _, id := range []models.OrganisationID{plain.ID, coloured.ID} {
			o, err := store.Organisation(t.Context(), id)
			must(t, err)
			got = append(got, o.Colour)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("colours (-want +got):\n%s", diff)
		}
	}
	colours("", "#1f5fae")
	colouring := func(id models.OrganisationID, colour models.Colour) error {
		return store.SetOrganisationColour(actBy(t.Context(), "jane", models.ActColourOrganisation), id, colour)
	}
	must(t, colouring(plain.ID, "#101010"))
	must(t, colouring(coloured.ID, ""))
	colours("#101010", "")
	if err := colouring(models.OrganisationID{1}, "#101010"); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("an unknown organisation: %v", err)
	}
	var details []string
	for _, e := range auditLog(t, store, models.AuditFilter{Actor: "jane"}) {
		details = append(details, string(e.Act)+" "+string(e.Detail))
	}
	want := []string{
		`colourOrganisation {"colour": "", "colourBefore": "#1f5fae"}`,
		`colourOrganisation {"colour": "#101010", "colourBefore": ""}`,
		`addOrganisation {"name": "Harbour Power", "colour": "#1f5fae"}`,
	}
	if diff := cmp.Diff(want, details); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
}
