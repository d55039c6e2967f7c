package api

import (
	"context"
	"time"

	"partnerbilling/models"
)

// A held request polls its noun at intervals that double from the minimum to the maximum.
const (
	minPollInterval = 100 * time.Millisecond
	maxPollInterval = time.Second
)

// await holds the answer until the batch has changed from the entity tag that the client knows.
// Without an entity tag it waits until the batch is settled. The wait also ends after the given
// time, when the client disconnects and when a shutdown begins. A poll reads only the batch's
// version; the batch itself is read when the version has changed, and at the end.
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
	var last models.BatchVersion // zero, so that the first poll reads the batch
	for interval := minPollInterval; !enough(&view) &&
		waiting.Err() == nil; interval = min(2*interval, maxPollInterval) {
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

// sleep returns after d or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
