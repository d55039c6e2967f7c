package api

import (
	"context"
	"time"

	"partnerbilling/models"
)

// heldDivisor bounds the held requests. Of the process's connections, an organisation may use
// 1/heldDivisor for them, and all organisations together 4/heldDivisor. A request over a limit is
// answered without a wait.
const heldDivisor = 8

func newHeldRequests(cfg Config) *heldLimit {
	connections := connectionCapacity(cfg.MemoryLimit)
	return newHeldLimit(cfg.Metrics, "requests", connections/heldDivisor, 4*connections/heldDivisor)
}

// heldBatch is a request that is held until its batch has changed.
type heldBatch struct {
	*batches
	r       *Request
	known   knownETags
	watch   *watch[models.BatchVersion]
	arrived time.Time
}

// hold returns the batch for a request with Prefer: wait; see heldBatch.await.
func (b *batches) hold(ctx context.Context, r *Request, known knownETags, wait time.Duration) (*batchView, error) {
	w, leave := b.watches.join(r, r.batchKey()) // before the first read, so that no change is missed
	defer leave()
	h := &heldBatch{batches: b, r: r, known: known, watch: w, arrived: r.began}
	return h.await(ctx, wait)
}

// await waits until the batch's entity tag differs from those that the client knows, and returns
// the batch. Without a known tag it waits until the batch is settled. The wait also ends after the
// given time, when the client disconnects and when a shutdown begins. A held request keeps neither
// a slot nor a database connection nor the answer.
func (h *heldBatch) await(ctx context.Context, wait time.Duration) (*batchView, error) {
	seen := h.watch.last()
	if view, err := h.first(ctx, seen); err != nil || h.isEnough(view) {
		return view, err
	}
	waiting, stop := h.r.UntilDisconnect(ctx)
	defer stop()
	waiting, cancel := context.WithTimeout(waiting, wait)
	defer cancel()
	caller := h.r.callerCheck()
	for waiting.Err() == nil {
		var changed bool
		err := h.r.withoutSlot(ctx, func() {
			part, cancel := context.WithTimeout(waiting, caller.untilDue())
			defer cancel()
			seen, changed = h.watch.await(part, seen.number, h.wants)
		})
		if err == nil {
			err = caller.repeatIfDue(ctx)
		}
		if err != nil {
			return nil, err
		}
		if !changed {
			continue
		}
		if view, err := h.reader.view(ctx, h.r); err != nil || h.isEnough(view) {
			return view, err
		}
	}
	return h.last(ctx, seen)
}

// isEnough reports whether a view ends the wait.
func (h *heldBatch) isEnough(v *batchView) bool {
	if h.known.given() {
		return !h.known.has(v.etag)
	}
	return v.settled
}

// wants reports whether the view of a changed version may end the wait.
func (h *heldBatch) wants(v models.BatchVersion) bool {
	return len(h.known.tags) > 0 && !h.known.any || !h.known.given() && v.State == models.BatchSettled
}

// first returns the batch at the start of the wait. It avoids a read if the watch's last version
// has a cached answer that does not end the wait: the watch's next look shows any change.
func (h *heldBatch) first(ctx context.Context, seen sighting[models.BatchVersion]) (*batchView, error) {
	if seen.number > 0 && seen.err == nil {
		if view := h.reader.keptAt(h.r.batchKey(), seen.value); view != nil && !h.isEnough(view) {
			return view, nil
		}
	}
	return h.reader.view(ctx, h.r)
}

// last returns the batch at the end of the wait. It avoids a read if the watch has looked since the
// request arrived and the version that it saw has a cached answer.
func (h *heldBatch) last(ctx context.Context, seen sighting[models.BatchVersion]) (*batchView, error) {
	if seen.number > 0 && seen.err == nil && seen.began.After(h.arrived) {
		if view := h.reader.keptAt(h.r.batchKey(), seen.value); view != nil {
			return view, nil
		}
	}
	return h.reader.view(ctx, h.r)
}
