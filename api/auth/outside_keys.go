package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"

	"partnerbilling/models"
)

// Limits for fetching an outside issuer's key set.
const (
	outsideFetchTimeout = 3 * time.Second
	outsideFetchLimit   = 256 << 10        // bytes
	outsideFreshFor     = 15 * time.Minute // an older set is fetched again
	outsideFetchEvery   = 10 * time.Second // minimum time between fetches
)

// outsideKeys caches an outside issuer's key set. It fetches the set on first use, when it is old,
// and when a token names an unknown key. After a failed fetch it keeps the old set. It is safe for
// concurrent use.
type outsideKeys struct {
	url    string
	client *http.Client
	now    func() time.Time

	fetching  chan struct{} // semaphore of one slot
	mu        sync.Mutex
	set       jwk.Set
	fetchedAt time.Time
	triedAt   time.Time // when the latest fetch began
}

func newOutsideKeys(url string, now func() time.Time) *outsideKeys {
	return &outsideKeys{
		url: url, now: now, fetching: make(chan struct{}, 1),
		client: &http.Client{Timeout: outsideFetchTimeout},
	}
}

// publicKey implements keySource.
func (o *outsideKeys) publicKey(ctx context.Context, keyID string, algorithm jwa.SignatureAlgorithm) (any, error) {
	set, old := o.latest()
	if set != nil {
		if key, ok := keyByID(set, keyID, algorithm); ok && (!old || !o.tryRefetch(ctx, set)) {
			return key, nil
		}
	}
	fetchErr := o.refetch(ctx, set)
	if set, _ = o.latest(); set == nil {
		return nil, fmt.Errorf("%w: key set of the outside issuer: %w", models.ErrUnavailable, fetchErr)
	}
	if key, ok := keyByID(set, keyID, algorithm); ok {
		return key, nil
	}
	return nil, invalid("unknown key id")
}

// keyByID returns the key of the set with the id, if it suits the algorithm.
func keyByID(set jwk.Set, keyID string, algorithm jwa.SignatureAlgorithm) (jwk.Key, bool) {
	key, ok := set.LookupKeyID(keyID)
	if !ok || keyID == "" || !fits(key, algorithm) || !usable(key) {
		return nil, false
	}
	return key, true
}

// latest returns the cached set, nil before the first fetch. old reports whether it is older than
// outsideFreshFor.
func (o *outsideKeys) latest() (set jwk.Set, old bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.set, o.now().Sub(o.fetchedAt) > outsideFreshFor
}

// mayFetch reports whether a fetch may begin now, and records its begin. It refuses if another
// fetch has replaced the set seen, or if the last one began less than outsideFetchEvery ago.
func (o *outsideKeys) mayFetch(seen jwk.Set) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.set != seen || o.now().Sub(o.triedAt) < outsideFetchEvery {
		return false
	}
	o.triedAt = o.now()
	return true
}

var errFetchedRecently = errors.New("the last fetch was a moment ago")

// tryRefetch is like refetch for a caller that has an old set. It does not wait for a running
// fetch. It reports whether it has fetched the set.
func (o *outsideKeys) tryRefetch(ctx context.Context, seen jwk.Set) bool {
	select {
	case o.fetching <- struct{}{}:
	default:
		return false
	}
	defer func() { <-o.fetching }()
	return o.refetchLocked(ctx, seen) == nil
}

// refetch fetches the set in place of the set seen, if mayFetch allows it.
func (o *outsideKeys) refetch(ctx context.Context, seen jwk.Set) error {
	select {
	case o.fetching <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-o.fetching }()
	return o.refetchLocked(ctx, seen)
}

// refetchLocked is refetch for a caller that holds the semaphore fetching.
func (o *outsideKeys) refetchLocked(ctx context.Context, seen jwk.Set) error {
	if !o.mayFetch(seen) {
		return errFetchedRecently
	}
	// The end of a single caller's context must not cancel the fetch for the others.
	set, err := o.fetch(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.set, o.fetchedAt = set, o.now()
	return nil
}

func (o *outsideKeys) fetch(ctx context.Context) (jwk.Set, error) {
	ctx, cancel := context.WithTimeout(ctx, outsideFetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	response, err := o.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, outsideFetchLimit+1))
	if err != nil {
		return nil, err
	}
	if len(body) > outsideFetchLimit {
		return nil, errors.New("too large")
	}
	return parseOutsideKeys(body)
}

// parseOutsideKeys parses a key set, and ignores keys that are not supported or not valid, as RFC
// 7517, section 5, asks. It returns an error if no key is left.
func parseOutsideKeys(body []byte) (jwk.Set, error) {
	set, err := jwk.Parse(body, jwk.WithIgnoreParseError(true))
	if err == nil && set.Len() == 0 {
		err = errors.New("no keys")
	}
	return set, err
}
