package models_test

import (
	"testing"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// wantLockedInOrder checks that a call locks the first task before the second. It holds the first
// while the call waits for it.
func wantLockedInOrder(t *testing.T, store *models.Store, first, second models.TaskID, call func() error) {
	t.Helper()
	tx, err := store.DB().BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "SELECT FROM outbox WHERE id = ? FOR UPDATE", first)
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- call() }()
	modelstest.AwaitLockWait(t, store)
	if _, err := tx.ExecContext(t.Context(), "SELECT FROM outbox WHERE id = ? FOR UPDATE NOWAIT", second); err != nil {
		t.Errorf("the second task is locked before the first: %v", err)
	}
	must(t, tx.Rollback())
	must(t, <-done)
}

// The tasks of a queue are reclaimed in the order of their ids, whichever lease ends first.
func TestReclaimQueueLocksInOrder(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	first := modelstest.Submit(t, store, modelstest.Batch(site, "first", "ada")).Tasks[0]
	second := modelstest.Submit(t, store, modelstest.Batch(site, "second", "ada")).Tasks[0]
	dueTasks(t, store)
	must(t, store.ExtendTask(t.Context(), second))
	must(t, store.ExtendTask(t.Context(), first)) // moves its row behind the second
	wantLockedInOrder(t, store, first, second, func() error {
		return only(store.ReclaimQueue(t.Context(), models.QueueDebits))
	})
}
