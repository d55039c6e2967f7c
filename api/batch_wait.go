package api

import (
	"context"
	"time"

	"partnerbilling/models"
)

// heldDivisor n allows an organisation an n-th, and all organisations four n-ths, of the process's
// connections for held requests. A request over the limit is answered without a wait.
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

// hold answers a request with Prefer: wait.
func (b *batches) hold(ctx context.Context, r *Request, known knownETags, wait time.Duration) (*batchView, error) {
	w, leave := b.watches.join(r, r.batchKey()) // before the first read, so that no change is missed
	defer leave()
	h := &heldBatch{batches: b, r: r, known: known, watch: w, arrived: r.began}
	return h.await(ctx, wait)
}

// await holds the answer until the batch has changed from the entity tag that the client knows.
// Without an entity tag it waits until the batch is settled. The wait also ends after the given
// time, when the client disconnects and when a shutdown begins. A held request keeps neither a slot
// nor a database connection nor the answer.
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

// isEnough reports whether a view answers the request, so that the wait ends.
func (h *heldBatch) isEnough(v *batchView) bool {
	if h.known.given() {
		return !h.known.has(v.etag)
	}
	return v.settled
}

// wants reports whether a version may be enough.
func (h *heldBatch) wants(v models.BatchVersion) bool {
	return len(h.known.tags) > 0 && !h.known.any || !h.known.given() && v.State == models.BatchSettled
}

// first returns the batch as the request finds it. If the kept answer of the version that the watch
// saw last is not enough, first returns that one without a read: the next look shows any change.
func (h *heldBatch) first(ctx context.Context, seen sighting[models.BatchVersion]) (*batchView, error) {
	if seen.number > 0 && seen.err == nil {
		if view := h.reader.keptAt(h.r.batchKey(), seen.value); view != nil && !h.isEnough(view) {
			return view, nil
		}
	}
	return h.reader.view(ctx, h.r)
}

// last returns the batch at the end of the wait: the one that the watch has seen since the request
// arrived, or a new read.
func (h *heldBatch) last(ctx context.Context, seen sighting[models.BatchVersion]) (*batchView, error) {
	if seen.number > 0 && seen.err == nil && seen.began.After(h.arrived) {
		if view := h.reader.keptAt(h.r.batchKey(), seen.value); view != nil {
			return view, nil
		}
	}
	return h.reader.view(ctx, h.r)
}
