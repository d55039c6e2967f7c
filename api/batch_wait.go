package api

import (
	"context"
	"time"

	"partnerbilling/models"
)

// heldBatchRequest is a request that is held until its batch has changed. known are the entity tags
// that the client knows.
type heldBatchRequest struct {
	*batches
	r       *Request
	known   knownETags
	watch   *watch[models.BatchVersion]
	arrived time.Time
}

// hold returns the batch for a request with Prefer: wait; see heldBatchRequest.await.
func (b *batches) hold(ctx context.Context, r *Request, known knownETags, wait time.Duration) (*batchView, error) {
	w, leave := b.watches.join(r, r.batchKey()) // before the first read, so that no change is missed
	defer leave()
	h := &heldBatchRequest{batches: b, r: r, known: known, watch: w, arrived: r.began}
	return h.await(ctx, wait)
}

// await waits until the batch's entity tag differs from those that the client knows, and returns
// the batch. Without a known tag it waits until the batch is settled. It also returns the batch
// after the given wait, when the client disconnects, or when a shutdown begins. It is an error if
// the caller loses access (see watch.hold).
//
// A held request keeps no answer in memory while it waits.
func (h *heldBatchRequest) await(ctx context.Context, wait time.Duration) (*batchView, error) {
	seen := h.watch.last()
	if view, err := h.first(ctx, seen); err != nil || h.isEnough(view) {
		return view, err
	}
	var view *batchView // nil until a view ends the wait
	seen, err := h.watch.hold(ctx, h.r, seen, wait, h.wants, func(sighting[models.BatchVersion]) (bool, error) {
		changed, err := h.reader.view(ctx, h.r)
		if err == nil && h.isEnough(changed) {
			view = changed
		}
		return view != nil, err
	})
	if view != nil || err != nil {
		return view, err
	}
	return h.last(ctx, seen)
}

// isEnough reports whether a view ends the wait.
func (h *heldBatchRequest) isEnough(v *batchView) bool {
	if h.known.given() {
		return !h.known.has(v.etag)
	}
	return v.settled
}

// wants reports whether the view of a changed version may end the wait. If the client sent "*" as
// the tag, no view ends it.
func (h *heldBatchRequest) wants(v models.BatchVersion) bool {
	return len(h.known.tags) > 0 && !h.known.any || !h.known.given() && v.State == models.BatchSettled
}

// first returns the batch at the start of the wait. It avoids a read if a view of the watch's last
// version is cached and does not end the wait: the watch's next poll shows any change.
func (h *heldBatchRequest) first(ctx context.Context, seen sighting[models.BatchVersion]) (*batchView, error) {
	if seen.number > 0 && seen.err == nil {
		if view := h.reader.cachedAt(h.r.batchKey(), seen.value); view != nil && !h.isEnough(view) {
			return view, nil
		}
	}
	return h.reader.view(ctx, h.r)
}

// last returns the batch at the end of the wait. It avoids a read if the watch has polled since the
// request arrived, and a view of the version that it saw is cached.
func (h *heldBatchRequest) last(ctx context.Context, seen sighting[models.BatchVersion]) (*batchView, error) {
	if seen.number > 0 && seen.err == nil && seen.began.After(h.arrived) {
		if view := h.reader.cachedAt(h.r.batchKey(), seen.value); view != nil {
			return view, nil
		}
	}
	return h.reader.view(ctx, h.r)
}
