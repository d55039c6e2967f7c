package jobs

import (
	"errors"
	"time"

	"pgregory.net/rapid"

	"partnerbilling/models"
)

func (m *debitModel) expireLeases(t *rapid.T) {
	m.exec(t, `UPDATE batch_rows SET lease_until = clock_timestamp()
WHERE batch_id = ? AND lease_until IS NOT NULL`, m.batch)
}

func (m *debitModel) cancel(t *rapid.T) {
	m.makeStale()
	if _, _, err := m.store.CancelBatch(t.Context(), m.site.ID, m.reference); err != nil {
		t.Fatal(err)
	}
}

func (m *debitModel) revoke(t *rapid.T) {
	m.makeStale()
	if _, err := m.store.RevokeCustomer(t.Context(), m.site.ID, m.reference); err != nil {
		t.Fatal(err)
	}
}

// advanceClock advances the clock: a little, to the last half hour, or to the deadline. It never
// passes the time in which the rail is asked.
func (m *debitModel) advanceClock(t *rapid.T) {
	step := rapid.SampledFrom([]time.Duration{
		2 * time.Second, time.Minute, 5 * time.Hour, models.SettleWithin - models.LastAttemptBefore,
		models.LastAttemptBefore,
	}).Draw(t, "step")
	if m.age+step > models.ConfirmWithin {
		t.Skip("the batch is too old")
	}
	m.age += step
	m.advance(t, step)
}

func (m *debitModel) advance(t *rapid.T, by time.Duration) {
	m.exec(t, "UPDATE service_clock SET offset_ms = offset_ms + ?", by.Milliseconds())
}

func (m *debitModel) sweep(t *rapid.T) {
	m.makeStale()
	if _, err := m.store.CloseUnsentRows(t.Context()); err != nil && !errors.Is(err, models.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := m.store.CloseOverdueBatch(t.Context()); err != nil && !errors.Is(err, models.ErrNotFound) {
		t.Fatal(err)
	}
}
