package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// sharing counts the reads of a batch, each of which takes a second.
type sharing struct {
	reader *batchReader
	reads  atomic.Int64
}

func newSharing() *sharing {
	return &sharing{reader: newBatchReader(Config{Metrics: prometheus.NewRegistry(), MemoryLimit: 1})}
}

func (s *sharing) get(ctx context.Context) (*batchView, error) {
	return s.reader.coalesce(ctx, batchKey{reference: "b"}, func(ctx context.Context) (*batchView, error) {
		n := s.reads.Add(1)
		select {
		case <-time.After(time.Second):
			return &batchView{etag: string(rune('0' + n))}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

// A batch that is remembered as large keeps nothing of the body that named it: the reference of a
// submission is a part of its whole text.
func TestLargeBatchesKeepNoBodies(t *testing.T) {
	t.Parallel()
	reader := newSharing().reader
	body := strings.Repeat("x", 1<<20)
	reader.expect(batchKey{reference: body[:10]}, largeBatchRows)
	keys := reader.large.Keys()
	if len(keys) != 1 || unsafe.StringData(keys[0].reference) == unsafe.StringData(body) {
		t.Errorf("%d batches are known, the first by a part of its body", len(keys))
	}
}

// Requests that arrive during a read share the next one, and never the running one: it may have
// begun before a change that they know of.
func TestReadsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharing()
		var second atomic.Int64
		go func() {
			if v, err := s.get(t.Context()); err != nil || v.etag != "1" {
				t.Errorf("the first: %+v, %v", v, err)
			}
		}()
		synctest.Wait()
		for range 100 {
			go func() {
				if v, err := s.get(t.Context()); err == nil && v.etag == "2" {
					second.Add(1)
				}
			}()
		}
		<-time.After(3 * time.Second)
		synctest.Wait()
		if second.Load() != 100 || s.reads.Load() != 2 || len(s.reader.reads) != 0 {
			t.Errorf("%d got the second of %d reads, %d are left", second.Load(), s.reads.Load(), len(s.reader.reads))
		}
	})
}

// If the request that runs a shared read ends, another one runs it.
func TestSharedReadOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharing()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		ended, served := new(atomic.Int64), new(atomic.Int64)
		for i := range 5 {
			own := t.Context()
			if i < 2 { // the first is served, the second runs the shared read and ends
				own = ctx
			}
			go func() {
				switch _, err := s.get(own); {
				case err == nil:
					served.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					ended.Add(1)
				}
			}()
			synctest.Wait()
		}
		<-time.After(4 * time.Second)
		synctest.Wait()
		if served.Load() != 4 || ended.Load() != 1 || len(s.reader.reads) != 0 {
			t.Errorf("%d were served, %d ended, %d reads are left", served.Load(), ended.Load(), len(s.reader.reads))
		}
	})
}

// If the request that would run the next read ends while the first read runs, its followers wait
// for the first read and then run one of their own.
func TestSharedReadIsAbandonedBeforeItBegins(t *testing.T) {
	t.Parallel()
	for _, followers := range []int{0, 2} {
		t.Run(fmt.Sprint(followers), func(t *testing.T) { testAbandonedRead(t, followers) })
	}
}

func testAbandonedRead(t *testing.T, followers int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSharing()
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		began := time.Now()
		served, ended := new(atomic.Int64), new(atomic.Int64)
		for i := range 2 + followers {
			own := t.Context()
			if i == 1 {
				own = short
			}
			go func() {
				switch v, err := s.get(own); {
				case err == nil && (i == 0) == (v.etag == "1"):
					served.Add(1)
				case errors.Is(err, context.DeadlineExceeded) && time.Since(began) == 500*time.Millisecond:
					ended.Add(1)
				default:
					t.Errorf("request %d after %v: %+v, %v", i, time.Since(began), v, err)
				}
			}()
			synctest.Wait()
		}
		<-time.After(4 * time.Second)
		synctest.Wait()
		if served.Load() != int64(1+followers) || ended.Load() != 1 || s.reads.Load() != int64(1+min(followers, 1)) ||
			len(s.reader.reads) != 0 {
			t.Errorf("%d were served, %d ended, %d reads ran, %d are left",
				served.Load(), ended.Load(), s.reads.Load(), len(s.reader.reads))
		}
	})
}

// A shutdown ends all requests at once.
func TestSharedReadsEndTogether(t *testing.T) {
	t.Parallel()
	for range 50 { // select takes either way
		synctest.Test(t, func(t *testing.T) {
			s := newSharing()
			ctx, cancel := context.WithCancel(t.Context())
			ended := new(atomic.Int64)
			for range 4 {
				go func() {
					if _, err := s.get(ctx); errors.Is(err, context.Canceled) {
						ended.Add(1)
					}
				}()
				synctest.Wait()
			}
			cancel()
			synctest.Wait()
			if ended.Load() != 4 || len(s.reader.reads) != 0 {
				t.Errorf("%d ended, %d reads are left", ended.Load(), len(s.reader.reads))
			}
		})
	}
}

// A read that fails because the request that runs it has ended is run again, whatever its error.
func TestSharedReadIsRepeatedAfterAnyErrorOfItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharing()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		get := func(ctx context.Context) (*batchView, error) {
			return s.reader.coalesce(ctx, batchKey{}, func(ctx context.Context) (*batchView, error) {
				select {
				case <-time.After(time.Second):
					return &batchView{}, nil
				case <-ctx.Done():
					return nil, errNoPermit
				}
			})
		}
		failed, served := new(atomic.Int64), new(atomic.Int64)
		for _, own := range []context.Context{ctx, ctx, t.Context()} { // the second one runs the shared read
			go func() {
				switch _, err := get(own); {
				case err == nil:
					served.Add(1)
				case errors.Is(err, errNoPermit) || errors.Is(err, context.DeadlineExceeded):
					failed.Add(1)
				}
			}()
			synctest.Wait()
		}
		<-time.After(4 * time.Second)
		synctest.Wait()
		if served.Load() != 2 || failed.Load() != 1 {
			t.Errorf("%d were served, %d failed", served.Load(), failed.Load())
		}
	})
}

// A cached answer serves while the batch has not changed, even if all permits to read large answers
// are taken.
func TestCachedAnswersNeedNoPermit(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada"))
	reader := newBatchReader(Config{Metrics: prometheus.NewRegistry(), Store: store, MemoryLimit: DefaultMemoryLimit})
	r := &Request{Site: site, param: "b"}
	reader.expect(r.batchKey(), largeBatchRows)
	first, err := reader.view(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for range maxLargeReads {
		if err := reader.permit.acquire(t.Context(), site.OrganisationID, 1); err != nil {
			t.Fatal(err)
		}
	}
	if again, err := reader.view(t.Context(), r); again != first || err != nil {
		t.Errorf("unchanged: %p instead of %p, %v", again, first, err)
	}
	if _, _, err := store.CancelBatch(t.Context(), site.ID, "b"); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := reader.view(short, r); err == nil {
		t.Error("a changed batch was read without a permit")
	}
	for range maxLargeReads {
		reader.permit.release(site.OrganisationID, 1)
	}
	if changed, err := reader.view(t.Context(), r); err != nil || !changed.settled {
		t.Errorf("changed: %+v, %v", changed, err)
	}
}

// All large answers that a client may ask for at its rate limit wait. Those that the service cannot
// read in time are unavailable, and not over the rate limit.
func TestLargeReadsWaitForPermits(t *testing.T) {
	t.Parallel()
	const burst = 200
	for _, tt := range []struct {
		took   time.Duration // of one read
		served int64
	}{{10 * time.Millisecond, burst}, {100 * time.Millisecond, 2 * int64(largeReadWait/(100*time.Millisecond))}} {
		synctest.Test(t, func(t *testing.T) {
			reader := newSharing().reader
			served, unavailable := new(atomic.Int64), new(atomic.Int64)
			for range burst {
				go func() {
					err := reader.withPermit(t.Context(), models.OrganisationID{}, func(context.Context) error {
						<-time.After(tt.took - time.Nanosecond) // so that none ends at the limit
						return nil
					})
					switch {
					case err == nil:
						served.Add(1)
					case errorOf("batches", err).Status() == 503:
						unavailable.Add(1)
					}
				}()
			}
			<-time.After(10 * time.Second)
			synctest.Wait()
			if n := served.Load(); n < tt.served || n > tt.served+maxLargeReads || n+unavailable.Load() != burst {
				t.Errorf("reads of %v: %d were served, %d unavailable", tt.took, n, unavailable.Load())
			}
		})
	}
}
