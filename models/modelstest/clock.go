package modelstest

import (
	"testing"
	"time"

	"partnerbilling/models"
)

// SetClock freezes the store's service time. Afterwards it moves only when it is set or advanced,
// not with real time.
func SetClock(t testing.TB, store *models.Store, at models.Millis) {
	t.Helper()
	execClock(t, store, "UPDATE service_clock SET frozen_ms = ?, offset_ms = 0", int64(at))
}

// AdvanceClock moves the store's service time forward, frozen or not.
func AdvanceClock(t testing.TB, store *models.Store, by time.Duration) {
	t.Helper()
	execClock(t, store, "UPDATE service_clock SET offset_ms = offset_ms + ?", by.Milliseconds())
}

func execClock(t testing.TB, store *models.Store, query string, arg int64) {
	t.Helper()
	if _, err := store.DB().ExecContext(t.Context(), query, arg); err != nil {
		t.Fatalf("modelstest: clock: %v", err)
	}
}
