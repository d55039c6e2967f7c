package jobs

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// savedTables lists the tables that a loss restores, each with the condition for the rows of one
// batch. The parameter is its batchReference, which is also its customer's reference.
var savedTables = []struct{ name, rows string }{
	{"batch_references", "batch_reference = ?"},
	{"batch_rows", "batch_id IN (SELECT id FROM batches WHERE batch_reference = ?)"},
	{"outbox", "subject_id IN (SELECT id FROM batches WHERE batch_reference = ?)"},
	{"batches", "batch_reference = ?"},
	{"ledger_entries", "batch_reference = ?"},
	{"customer_links", "customer_reference = ?"},
}

// createSavedTables creates the tables that backUp writes.
func createSavedTables(t *testing.T, store *models.Store) {
	t.Helper()
	for _, table := range savedTables {
		create := fmt.Sprintf("CREATE TABLE saved_%[1]s (LIKE %[1]s)", table.name)
		if _, err := store.DB().ExecContext(t.Context(), create); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *debitModel) key(row int) string {
	return models.NewBatchKey(m.site.ID, m.reference, 1).Row(fmt.Sprint("row-", row))
}

// backUp saves the batch as it is for a later loss.
func (m *debitModel) backUp(t *rapid.T) {
	for _, table := range savedTables {
		m.exec(t, "DELETE FROM saved_"+table.name)
		m.exec(t, fmt.Sprintf("INSERT INTO saved_%[1]s SELECT * FROM %[1]s WHERE %[2]s", table.name, table.rows),
			m.reference)
	}
	m.backedUp = true
}

// lose restores the batch from the backup, as the promotion of a lagging standby does: all later
// commits are lost. Workers and the rail do not notice.
func (m *debitModel) lose(t *rapid.T) {
	if !m.backedUp {
		t.Skip("no backup")
	}
	m.drop(t, "batch_rows", "outbox", "batch_references", "batches", "ledger_entries", "customer_links")
	for _, table := range savedTables {
		m.exec(t, fmt.Sprintf("INSERT INTO %[1]s SELECT * FROM saved_%[1]s", table.name))
	}
	m.beginEpoch(t)
}

// loseAll loses the whole batch. Its partner gets a 404 and submits it again.
func (m *debitModel) loseAll(t *rapid.T) {
	m.drop(t, "batch_rows", "outbox", "batch_references", "batches", "ledger_entries")
	m.beginEpoch(t)
	done := modelstest.Submit(m.t, m.store, modelstest.Batch(m.site, m.reference, m.reference, m.reference, "unknown"))
	m.batch, m.task, m.age, m.backedUp = done.Batch.ID, done.Tasks[0], 0, false
}

func (m *debitModel) drop(t *rapid.T, tables ...string) {
	for _, name := range tables {
		for _, table := range savedTables {
			if table.name == name {
				m.exec(t, fmt.Sprintf("DELETE FROM %s WHERE %s", table.name, table.rows), m.reference)
			}
		}
	}
}

// beginEpoch makes the database look like a new one.
func (m *debitModel) beginEpoch(t *rapid.T) {
	m.exec(t, "UPDATE database_epoch SET timeline = 'lost'")
	m.before = map[int]models.BatchRow{}
}
