package queue

import (
	"log/slog"
	"testing"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/queue/queuetest"
)

// While new webhooks come as fast as others end, those that wait for the loop get their share all the same.
func TestNewWebhooksLeaveRoomForThoseThatWait(t *testing.T) {
	t.Parallel()
	store, client := modelstest.Open(t), queuetest.Client(t, queuetest.Start(t).URL)
	d := NewDispatcher(store, client, DispatcherConfig{Log: slog.New(slog.DiscardHandler)})
	site := modelstest.Site(t, store)
	bounds := d.bounds(models.QueueWebhooks)
	// insert writes webhooks of as many organisations, in flight or due.
	insert := func(n int, flying bool) (tasks []models.TaskID) {
		t.Helper()
		err := store.DB().NewRaw(`
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, available_at, dispatched_at, redispatch_after)
SELECT gen_random_uuid(), 'deliverWebhook', 'webhooks', gen_random_uuid(), ?, gen_random_uuid(), 1,
    CASE WHEN ? THEN clock_timestamp() END, CASE WHEN ? THEN clock_timestamp() + interval '1 hour' END
FROM generate_series(1, ?) RETURNING id`, site.ID, flying, flying, n).Scan(t.Context(), &tasks)
		if err != nil {
			t.Fatal(err)
		}
		return tasks
	}
	inFlight := func() (n int) {
		t.Helper()
		if err := store.DB().NewRaw(`SELECT count(*) FROM outbox WHERE dispatched_at IS NOT NULL`).Scan(t.Context(), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	busy := bounds.Total - bounds.Worth
	insert(busy-10, true)
	waiting := insert(100, false)
	if _, err := d.claim(t.Context(), waiting[:50]); err != nil {
		t.Fatal(err)
	}
	if n := inFlight(); n > busy {
		t.Errorf("new webhooks went up to %d in flight, which leaves less than a claim is worth of %d", n, bounds.Total)
	}
	if n, err := d.dispatchDue(t.Context(), bounds); err != nil || n < 90 {
		t.Errorf("of 90 that wait the loop took %d, %v", n, err)
	}
}
