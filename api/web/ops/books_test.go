package ops_test

import (
	"testing"

	"partnerbilling/models"
)

// A time without a comparison is no violation that the audit has found.
func TestBooksCountViolations(t *testing.T) {
	p := newPagesTest(t, nil)
	for _, alert := range [][2]string{
		{models.AlertAuditViolation, "row"}, {models.AlertReconciliationGap, "1"}, {models.AlertReconciliationGap, "2"},
	} {
		_, err := p.store.DB().ExecContext(p.Context(), "SELECT raise_alert(?, ?, NULL, NULL, 'x', '')",
			alert[0], alert[1])
		must(p.T, err)
	}
	p.page("/ops/books", "<dt>Violations</dt><dd>1</dd>", "Violations and gaps")
}
