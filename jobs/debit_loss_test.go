package jobs

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// savedTables are the tables that a loss brings back, with the condition that selects the rows of one batch. $1 is its
// batchReference, which is its customer's reference too.
var savedTables = []struct{ name, rows string }{
	{"batch_references", "batch_reference = ?"},
	{"batch_rows", "batch_id IN (SELECT id FROM batches WHERE batch_reference = ?)"},
	{"outbox", "subject_id IN (SELECT id FROM batches WHERE batch_reference = ?)"},
	{"batches", "batch_reference = ?"},
	{"ledger_entries", "batch_reference = ?"},
	{"customer_links", "customer_reference = ?"},
}

// prepareLosses makes the tables that backUp writes.
func prepareLosses(t *testing.T, store *models.Store) {
	t.Helper()
	for _, table := range savedTables {
		if _, err := store.DB().ExecContext(t.Context(), fmt.Sprintf("CREATE TABLE saved_%[1]s (LIKE %[1]s)", table.name)); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *debitLife) key(row int) string {
	return models.NewBatchKey(l.site.ID, l.reference, 1).Row(fmt.Sprint("row-", row))
}

// backUp keeps the batch as it is for a later loss.
func (l *debitLife) backUp(t *rapid.T) {
	for _, table := range savedTables {
		l.exec(t, "DELETE FROM saved_"+table.name)
		l.exec(t, fmt.Sprintf("INSERT INTO saved_%[1]s SELECT * FROM %[1]s WHERE %[2]s", table.name, table.rows), l.reference)
	}
	l.backedUp = true
}

// lose brings the batch back as it was backed up, as the promotion of a standby that lagged does: all that was committed
// since is lost. Workers and the rail know nothing of it.
func (l *debitLife) lose(t *rapid.T) {
	if !l.backedUp {
		t.Skip("nothing to bring back")
	}
	l.drop(t, "batch_rows", "outbox", "batch_references", "batches", "ledger_entries", "customer_links")
	for _, table := range savedTables {
		l.exec(t, fmt.Sprintf("INSERT INTO %[1]s SELECT * FROM saved_%[1]s", table.name))
	}
	l.beginEpoch(t)
}

// loseAll loses the batch from its submission on. Its partner, whose GET answers 404, submits it again.
func (l *debitLife) loseAll(t *rapid.T) {
	l.drop(t, "batch_rows", "outbox", "batch_references", "batches", "ledger_entries")
	l.beginEpoch(t)
	done := modelstest.Submit(l.t, l.store, modelstest.Batch(l.site, l.reference, l.reference, l.reference, "nobody"))
	l.batch, l.task, l.age, l.backedUp = done.Batch.ID, done.Tasks[0], 0, false
}

func (l *debitLife) drop(t *rapid.T, tables ...string) {
	for _, name := range tables {
		for _, table := range savedTables {
			if table.name == name {
				l.exec(t, fmt.Sprintf("DELETE FROM %s WHERE %s", table.name, table.rows), l.reference)
			}
		}
	}
}

// beginEpoch makes the server look like another one.
func (l *debitLife) beginEpoch(t *rapid.T) {
	l.exec(t, "UPDATE database_epoch SET timeline = 'lost'")
	l.before = map[int]models.BatchRow{}
}
