package api

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
)

const (
	// largeBatchRows is the minimum number of rows of a batch whose answer is assumed to be large
	// before it is rendered.
	largeBatchRows = 400
	// knownLargeBatches is the capacity of the cache of large batches' keys.
	knownLargeBatches = 4096
	// cacheDivisor sizes the cache of rendered answers: about 1/cacheDivisor of the memory limit,
	// and at least 4 answers.
	cacheDivisor = 32
	// cachedAnswerSize is the assumed size of a cached answer, in bytes. Answers of more than twice
	// this size are not cached.
	cachedAnswerSize = 1 << 20

	// maxLargeReads is the maximum number of large answers that are read and rendered at once.
	maxLargeReads = 2
	// maxLargeReadsWaiting is the maximum number of an organisation's reads that queue for a
	// permit. It exceeds the default burst of a client's rate limit, so that largeReadWait bounds
	// the queue.
	maxLargeReadsWaiting = 256
	// largeReadWait is the maximum time that a read waits for a permit.
	largeReadWait = 2 * time.Second
)

// batchKey identifies a batch.
type batchKey struct {
	site      models.SiteID
	reference string
}

// batchReader reads batches and renders them as JSON or CSV.
//
// It coalesces JSON reads: one read of a batch runs at a time, and requests that arrive during it
// share the next one. No answer is therefore older than its request. CSV reads and reads from the
// replica are not coalesced.
//
// Large answers cost much CPU time here and in Postgres. To read one, a request gives up its slot
// (Config.Concurrency) and acquires a permit. Permits are few, and are shared fairly among
// organisations. Rendered large answers are cached, and served again while the batch's version
// stays the same.
//
// A batchReader is safe for concurrent use.
type batchReader struct {
	store    *models.Store
	large    *lru.Cache[batchKey, struct{}]        // keys of batches that are known to be large
	rendered *lru.Cache[batchKey, cachedBatch]     // rendered large answers
	permit   *fairSemaphore[models.OrganisationID] // permits to read a large answer

	mu    sync.Mutex
	reads map[batchKey]*batchReads
}

// cachedBatch is a cached answer, and the version of the batch that it shows.
type cachedBatch struct {
	version models.BatchVersion
	view    *batchView
}

// batchReads holds the coalesced reads of one batch: the read that runs now, and the next one,
// which requests join. Either may be nil.
type batchReads struct{ running, next *batchRead }

// batchRead is a read that requests share. The first request to join it leads it: it runs the read.
type batchRead struct {
	done      chan struct{} // closed when the other fields are set
	view      *batchView
	err       error
	abandoned bool // the read failed, and its leader's context had ended
}

func newBatchReader(cfg Config) *batchReader {
	large, err := lru.New[batchKey, struct{}](knownLargeBatches)
	rendered, cacheErr := lru.New[batchKey, cachedBatch](max(4, int(cfg.MemoryLimit/cacheDivisor/cachedAnswerSize)))
	if errors.Join(err, cacheErr) != nil {
		panic(err) // only for a size below 1
	}
	refused := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "svc_http_large_reads_refused_total",
		Help: "Reads of large batches refused because too many of the organisation's waited, or one for too long.",
	})
	cfg.Metrics.MustRegister(refused)
	return &batchReader{
		store: cfg.Store, large: large, rendered: rendered, reads: map[batchKey]*batchReads{},
		permit: newFairSemaphore[models.OrganisationID](fairLimits{
			permits: maxLargeReads, waitersPerCaller: maxLargeReadsWaiting, wait: largeReadWait,
		}, refused),
	}
}

// batchKey returns the key of the batch in the path.
func (r *Request) batchKey() batchKey { return batchKey{r.Site.ID, r.Param()} }

// expect remembers a batch as large if it has at least largeBatchRows rows.
func (b *batchReader) expect(key batchKey, rows int) {
	if rows >= largeBatchRows {
		key.reference = strings.Clone(key.reference) // else the cache would keep the whole body
		b.large.Add(key, struct{}{})
	}
}

// view returns the batch in a request's path, rendered as JSON. It releases the request's slot
// during the read of a large batch. After an error the request may hold no slot.
func (b *batchReader) view(ctx context.Context, r *Request) (*batchView, error) {
	key := r.batchKey()
	if !b.large.Contains(key) {
		return b.read(ctx, key, func(ctx context.Context) (*batchView, error) { return b.load(ctx, key) })
	}
	r.slot.release()
	view, err := b.read(ctx, key, func(ctx context.Context) (*batchView, error) { return b.loadLarge(ctx, r) })
	if err != nil {
		return nil, err
	}
	return view, r.slot.reacquire(ctx)
}

// table returns the rows of the batch in a request's path as CSV. It treats the slot as view does.
func (b *batchReader) table(ctx context.Context, r *Request) (table []byte, err error) {
	key := r.batchKey()
	read := func(ctx context.Context) error {
		_, rows, err := b.store.GetBatch(ctx, key.site, key.reference)
		if err != nil {
			return batchError(err)
		}
		b.expect(key, len(rows))
		table = encodeRows(rows)
		return nil
	}
	if !b.large.Contains(key) {
		err = read(ctx)
		return table, err
	}
	r.slot.release()
	if err := b.withPermit(ctx, r.Site.OrganisationID, read); err != nil {
		return nil, err
	}
	return table, r.slot.reacquire(ctx)
}

// withPermit runs read with a permit to read a large answer. It returns an error that wraps
// models.ErrUnavailable if it gets no permit in time.
func (b *batchReader) withPermit(
	ctx context.Context, organisation models.OrganisationID, read func(ctx context.Context) error,
) error {
	if err := b.permit.acquire(ctx, organisation, 1); err != nil {
		return err
	}
	defer b.permit.release(organisation, 1)
	return read(ctx)
}

// load reads and renders a batch. It remembers the batch as large if its answer is.
func (b *batchReader) load(ctx context.Context, key batchKey) (*batchView, error) {
	batch, rows, err := b.store.GetBatch(ctx, key.site, key.reference)
	if err != nil {
		return nil, batchError(err)
	}
	view, err := viewBatch(&batch, rows)
	if len(view.data) >= largeAnswer {
		b.large.Add(key, struct{}{})
	}
	return view, err
}

// loadLarge returns the cached answer of a batch if it shows the current version. Otherwise it
// reads, renders and caches the batch. The request holds no slot when loadLarge begins and ends.
func (b *batchReader) loadLarge(ctx context.Context, r *Request) (view *batchView, err error) {
	if view, err = b.cachedIfCurrent(ctx, r); view != nil || err != nil {
		return view, err
	}
	key := r.batchKey()
	err = b.withPermit(ctx, r.Site.OrganisationID, func(ctx context.Context) error {
		batch, rows, version, err := b.store.GetVersionedBatch(ctx, key.site, key.reference)
		if err != nil {
			return batchError(err)
		}
		if view, err = viewBatch(&batch, rows); err == nil && len(view.data) <= 2*cachedAnswerSize {
			b.rendered.Add(key, cachedBatch{version, view})
		}
		return err
	})
	return view, err
}

// cachedIfCurrent returns the cached answer of a batch, nil if there is none or the batch has
// changed. It reads the version with a slot and without a permit, because this read is as cheap as
// ordinary ones.
func (b *batchReader) cachedIfCurrent(ctx context.Context, r *Request) (*batchView, error) {
	key := r.batchKey()
	cached, ok := b.rendered.Get(key)
	if !ok {
		return nil, nil
	}
	if err := r.slot.reacquire(ctx); err != nil {
		return nil, err
	}
	defer r.slot.release()
	version, err := b.store.BatchVersion(ctx, key.site, key.reference)
	if err != nil || version != cached.version {
		return nil, batchError(err)
	}
	return cached.view, nil
}

// cachedAt returns the cached answer for a version of a batch, nil if there is none.
func (b *batchReader) cachedAt(key batchKey, version models.BatchVersion) *batchView {
	if cached, ok := b.rendered.Get(key); ok && cached.version == version {
		return cached.view
	}
	return nil
}

// read returns the result of a read that begins after the call. Unless the replica serves it, the
// read is coalesced.
func (b *batchReader) read(
	ctx context.Context, key batchKey, read func(ctx context.Context) (*batchView, error),
) (*batchView, error) {
	if b.store.ReadsReplica(ctx) {
		return read(ctx)
	}
	return b.coalesce(ctx, key, read)
}

// coalesce joins the next read of a batch and returns its result. The first request that joins
// leads the read. If the leader's request ends during the read, a waiting request leads another
// read.
func (b *batchReader) coalesce(
	ctx context.Context, key batchKey, read func(ctx context.Context) (*batchView, error),
) (*batchView, error) {
	for {
		shared, previous, leads := b.join(key)
		if leads {
			b.lead(ctx, key, shared, previous, read)
		}
		select {
		case <-shared.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !shared.abandoned || leads || ctx.Err() != nil {
			return shared.view, shared.err
		}
	}
}

// lead runs a read once the previous one has ended. If the read fails and ctx has ended, lead marks
// the read as abandoned.
func (b *batchReader) lead(
	ctx context.Context, key batchKey, shared, previous *batchRead,
	read func(ctx context.Context) (*batchView, error),
) {
	defer b.end(key, shared)
	defer func() { shared.abandoned = shared.err != nil && ctx.Err() != nil }()
	if previous != nil {
		select {
		case <-previous.done:
		case <-ctx.Done():
			shared.err = ctx.Err()
			return
		}
	}
	b.begin(key)
	shared.view, shared.err = read(ctx)
}

// join returns the next read of a batch. leads reports whether the caller must lead it. The leader
// first waits for previous, the read that runs now, unless that is nil.
func (b *batchReader) join(key batchKey) (shared, previous *batchRead, leads bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	reads := b.reads[key]
	if reads == nil {
		reads = &batchReads{}
		b.reads[key] = reads
	}
	if reads.next != nil {
		return reads.next, nil, false
	}
	reads.next = &batchRead{done: make(chan struct{}), err: errReadFailed}
	return reads.next, reads.running, true
}

// errReadFailed is the error of a read that panics.
var errReadFailed = errors.New("api: the shared read of a batch has failed")

// begin makes the next read of a batch the running one, so that later requests do not join it. The
// previous read must have ended.
func (b *batchReader) begin(key batchKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	reads := b.reads[key]
	reads.running, reads.next = reads.next, nil
}

// end removes a read and wakes the requests that joined it. The read is the running one, or the
// next one if it was abandoned before it began.
func (b *batchReader) end(key batchKey, shared *batchRead) {
	defer close(shared.done)
	b.mu.Lock()
	defer b.mu.Unlock()
	reads := b.reads[key]
	if reads.running == shared {
		reads.running = nil
	} else {
		reads.next = nil
	}
	if reads.running == nil && reads.next == nil {
		delete(b.reads, key)
	}
}
