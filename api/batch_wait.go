package api

import (
	"context"
	"time"

	"partnerbilling/models"
)

// The pause between two looks at a batch that a client waits for: it grows from the first to the last.
const (
	minPollInterval = 100 * time.Millisecond
	maxPollInterval = time.Second
)

// await holds the answer until the batch is another than the client knows or, if it said nothing of what it knows,
// until the batch is settled; but not beyond wait, the client's presence or the begin of a shutdown. A look costs one
// aggregate in Postgres; the batch itself is read when it has changed, and at the end.
func (b *batches) await(
	ctx context.Context, r *Request, view batchView, known knownETags, wait time.Duration,
) (batchView, error) {
	enough := func(v *batchView) bool { return v.settled }
	changed := func(was, is models.BatchVersion) bool { return is.State == models.BatchSettled }
	if known.given() {
		enough = func(v *batchView) bool { return !known.has(v.etag) }
		changed = func(was, is models.BatchVersion) bool { return is != was }
	}
	waiting, stop := r.UntilDisconnect(ctx)
	defer stop()
	waiting, cancel := context.WithTimeout(waiting, wait)
	defer cancel()
	caller := r.callerCheck()
	var last models.BatchVersion // of nothing yet: the first look finds a change
	for interval := minPollInterval; !enough(&view) && waiting.Err() == nil; interval = min(2*interval, maxPollInterval) {
		if err := r.withoutSlot(ctx, func() { sleep(waiting, interval) }); err != nil {
			return view, err
		}
		if err := caller.repeatIfDue(ctx); err != nil {
			return view, err
		}
		now, err := b.store.BatchVersion(ctx, r.Site.ID, r.Param())
		if err != nil {
			return view, batchError(err)
		}
		if !changed(last, now) && waiting.Err() == nil {
			continue
		}
		last = now
		if view, err = b.view(ctx, r); err != nil {
			return view, err
		}
	}
	return view, nil
}

// sleep returns after d or when the context ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
