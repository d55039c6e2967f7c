package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"partnerbilling/models"
)

// batches handles the routes about a Site's batches.
type batches struct {
	store   *models.Store
	notify  func([]models.TaskID) // may be nil
	pages   *paginator
	reader  *batchReader
	held    *heldLimit                              // bounds the requests with Prefer: wait
	watches *watches[batchKey, models.BatchVersion] // poll the batches that these requests wait for
}

func newBatches(cfg Config, held *heldLimit) *batches {
	poll := func(ctx context.Context, key batchKey) (models.BatchVersion, error) {
		return cfg.Store.BatchVersion(ctx, key.site, key.reference)
	}
	return &batches{
		store: cfg.Store, notify: cfg.Notify, pages: newPaginator(cfg),
		reader: newBatchReader(cfg), held: held, watches: newWatches(cfg.Log, minPollInterval, maxPollInterval, poll),
	}
}

// batchData is a batch on the wire. Lists leave out the rows.
type batchData struct {
	models.BatchSummary
	Rows []models.BatchRowSummary `json:"rows,omitempty"`
}

// describeBatch returns a batch and its rows as the answer shows them. For a list, rows is nil.
func describeBatch(b *models.Batch, rows []models.BatchRow) batchData {
	data := batchData{BatchSummary: b.Summary(), Rows: make([]models.BatchRowSummary, len(rows))}
	for i := range rows {
		data.Rows[i] = rows[i].Summary()
	}
	return data
}

// retryInProgress is the Retry-After of an answer about a batch in progress.
const retryInProgress = time.Second

// batchView is a snapshot of a batch and its rows, encoded for the answer. Requests share it, so it
// must not be changed.
type batchView struct {
	settled bool
	data    []byte // JSON
	etag    string
}

// viewBatch encodes a batch and its rows, and derives the entity tag from the result.
func viewBatch(b *models.Batch, rows []models.BatchRow) (*batchView, error) {
	data, err := EncodeData(describeBatch(b, rows))
	return &batchView{b.State == models.BatchSettled, data, weakETag(data)}, err
}

// setHeaders sets the entity tag and, for a batch in progress, Retry-After.
func (v *batchView) setHeaders(r *Request) {
	r.SetHeader("ETag", v.etag)
	if !v.settled {
		r.RetryAfter(retryInProgress)
	}
}

// get answers with the batch in the path and its rows, or with 304 if If-None-Match has its entity
// tag. With Prefer: wait it first waits: until that tag changes or, without If-None-Match, until
// the batch is settled.
func (b *batches) get(ctx context.Context, r *Request) error {
	known := r.knownETags()
	wait, release := b.held.preferredWait(r)
	defer release()
	var view *batchView
	var err error
	if wait > 0 {
		view, err = b.hold(ctx, r, known, wait)
	} else {
		view, err = b.reader.view(ctx, r)
	}
	if err != nil {
		return err
	}
	if wait > 0 {
		r.SetHeader("Preference-Applied", "wait")
	}
	view.setHeaders(r)
	if known.has(view.etag) {
		return r.NotModified(view.etag)
	}
	return r.JSONBytes(http.StatusOK, view.data)
}

// cancel cancels the batch in the path, and answers with it. Pending rows end at once, unless the
// database may have lost commits about calls to the rail. Tasks cancel the other open rows on the
// rail.
func (b *batches) cancel(ctx context.Context, r *Request) error {
	batch, rows, err := b.store.CancelBatch(ctx, r.Site.ID, r.Param())
	if err != nil {
		return batchError(err)
	}
	view, err := viewBatch(&batch, rows)
	if err != nil {
		return err
	}
	view.setHeaders(r)
	return r.JSONBytes(http.StatusOK, view.data)
}

// batchError maps errors about the batch in the path, or about a retry of it, to their answers. It
// returns other errors unchanged.
func batchError(err error) error {
	switch {
	case errors.Is(err, models.ErrNotFound):
		return Refuse(BatchNotFound, "batchReference")
	case errors.Is(err, models.ErrBatchInProgress):
		return Refuse(BatchInProgress, "batchReference")
	case errors.Is(err, models.ErrNothingToRetry):
		return Refuse(NothingToRetry, "batchReference")
	case errors.Is(err, models.ErrAlreadyRetried):
		return Refuse(AlreadyRetried, "batchReference")
	case errors.Is(err, models.ErrBatchReferenceTaken):
		return Refuse(BatchReferenceConflict, "batchReference")
	}
	return err
}
