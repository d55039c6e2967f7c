package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"partnerbilling/api/ratelimit"
	"partnerbilling/models"
)

const (
	batchesPath = "/billing/sites/{siteId}/batches"
	batchPath   = batchesPath + "/{batchReference}"
)

// batchParam is the path parameter of the routes about one batch.
var batchParam = Param{Name: "batchReference", Check: models.ValidateReference, NotFound: BatchNotFound}

func batchRoutes(cfg Config) []Route {
	b := &batches{store: cfg.Store, notify: cfg.Notify, debits: cfg.Debits,
		pages: &paginator{cfg.Keys, cfg.PublicBaseURL}}
	read := Route{Area: "batches", Audience: Partner, Scope: models.ScopeBatchesRead, Version: VersionOptional}
	write := Route{Area: "batches", Audience: Partner, Scope: models.ScopeBatchesWrite, Version: VersionOptional}

	list, get, rows := read, read, read
	list.Method, list.Path, list.Handler = http.MethodGet, batchesPath, b.list
	list.Paged, list.Query = true, []string{"limit", "state", "submittedFrom", "submittedTo"}
	get.Method, get.Path, get.Param, get.Handler = http.MethodGet, batchPath, batchParam, b.get
	get.Timeout = MaxWait + orDefault(cfg.RequestTimeout, defaultRequestTimeout)
	rows.Method, rows.Path, rows.Param, rows.Handler = http.MethodGet, batchPath+"/rows", batchParam, b.rowsCSV

	submit, validate, cancel, retry := write, write, write, write
	submit.Method, submit.Path, submit.Handler = http.MethodPost, batchesPath, b.submit
	submit.Rate, submit.Body, submit.Bounds = ratelimit.Batches, JSONBody, BatchBody
	validate.Method, validate.Path, validate.Handler = http.MethodPost, batchesPath+"/validation", b.validate
	validate.Rate, validate.Body, validate.Bounds = ratelimit.Batches, JSONBody, BatchBody
	cancel.Method, cancel.Path, cancel.Param, cancel.Handler = http.MethodPost, batchPath+"/cancellation", batchParam,
		b.cancel
	retry.Method, retry.Path, retry.Param, retry.Handler = http.MethodPost, batchPath+"/retry", batchParam, b.retry
	retry.Rate, retry.Body = ratelimit.Batches, JSONBody
	return []Route{list, submit, validate, get, rows, cancel, retry}
}

// DebitDispatch dispatches the tasks of new batches.
type DebitDispatch interface {
	// ClaimBounds bounds the tasks that the submitting transaction may claim.
	ClaimBounds() models.Dispatch
	// Send enqueues the claimed tasks right after the commit. It must not block.
	Send(claimed []models.Task)
}

// batches handles the routes about batches.
type batches struct {
	store  *models.Store
	notify func([]models.TaskID) // may be nil
	debits DebitDispatch         // may be nil
	pages  *paginator
}

// batchData is a batch on the wire. Lists leave out the rows.
type batchData struct {
	models.BatchSummary
	Rows []models.BatchRowSummary `json:"rows,omitempty"`
}

func describeBatch(b *models.Batch, rows []models.BatchRow) batchData {
	data := batchData{BatchSummary: b.Summary(), Rows: make([]models.BatchRowSummary, len(rows))}
	for i := range rows {
		data.Rows[i] = rows[i].Summary()
	}
	return data
}

// retryInProgress is the Retry-After of a batch in progress.
const retryInProgress = time.Second

// batchView is a snapshot of a batch, encoded for the answer.
type batchView struct {
	settled bool
	data    []byte // JSON
	etag    string
}

func viewBatch(b *models.Batch, rows []models.BatchRow) (batchView, error) {
	data, err := EncodeData(describeBatch(b, rows))
	return batchView{b.State == models.BatchSettled, data, weakETag(data)}, err
}

func (b *batches) view(ctx context.Context, r *Request) (batchView, error) {
	batch, rows, err := b.store.GetBatch(ctx, r.Site.ID, r.Param())
	if err != nil {
		return batchView{}, batchError(err)
	}
	return viewBatch(&batch, rows)
}

// setHeaders sets the entity tag and, for a batch in progress, Retry-After.
func (v *batchView) setHeaders(r *Request) {
	r.SetHeader("ETag", v.etag)
	if !v.settled {
		r.RetryAfter(retryInProgress)
	}
}

func (b *batches) get(ctx context.Context, r *Request) error {
	known := r.knownETags()
	view, err := b.view(ctx, r)
	if err != nil {
		return err
	}
	if wait := r.PreferWait(); wait > 0 {
		if view, err = b.await(ctx, r, view, known, wait); err != nil {
			return err
		}
		r.SetHeader("Preference-Applied", "wait")
	}
	view.setHeaders(r)
	if known.has(view.etag) {
		return r.NotModified(view.etag)
	}
	return r.JSONBytes(http.StatusOK, view.data)
}

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

// batchError maps errors about the batch in the path to their answers.
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
