package auth

import (
	"context"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"partnerbilling/models"
)

// The lifetimes of cached clients. A disabled client's tokens become invalid within clientUsableFor
// in every process.
const (
	clientFreshFor    = 15 * time.Second
	clientUsableFor   = 30 * time.Second // while Postgres does not respond
	clientReadTimeout = 2 * time.Second
	clientRetryEvery  = time.Second
	clientCacheSize   = 10_000
)

// clientCache caches clients for a few seconds, including unknown ones.
type clientCache struct {
	store   *models.Store
	now     func() time.Time
	known   *lru.Cache[models.ClientID, cachedClient]
	reading singleflight.Group
}

type cachedClient struct {
	client  models.Client
	err     error // nil or models.ErrNotFound
	readAt  time.Time
	triedAt time.Time // when a read last failed since readAt; zero: never
}

func newClientCache(store *models.Store, now func() time.Time) *clientCache {
	known, err := lru.New[models.ClientID, cachedClient](clientCacheSize)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &clientCache{store: store, now: now, known: known}
}

// get returns a client, at most clientUsableFor old, or models.ErrNotFound.
func (c *clientCache) get(ctx context.Context, id models.ClientID) (models.Client, error) {
	entry, ok := c.known.Get(id)
	now := c.now()
	usable := ok && now.Sub(entry.readAt) < clientUsableFor
	if ok && now.Sub(entry.readAt) < clientFreshFor || usable && now.Sub(entry.triedAt) < clientRetryEvery {
		return entry.client, entry.err
	}
	fresh, err, _ := c.reading.Do(id.String(), func() (any, error) { return c.read(ctx, id) })
	if err == nil {
		entry, _ = fresh.(cachedClient)
		return entry.client, entry.err
	}
	if usable && ctx.Err() == nil {
		entry.triedAt = now
		c.known.Add(id, entry)
		return entry.client, entry.err
	}
	return models.Client{}, err
}

// read reads a client from Postgres for all waiting callers. The end of a single caller's context
// does not cancel it.
func (c *clientCache) read(ctx context.Context, id models.ClientID) (cachedClient, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clientReadTimeout)
	defer cancel()
	at := c.now()
	client, err := c.store.Client(ctx, id)
	if err != nil && !errors.Is(err, models.ErrNotFound) {
		if ctx.Err() != nil {
			err = errors.Join(models.ErrUnavailable, err)
		}
		return cachedClient{}, err
	}
	entry := cachedClient{client: client, err: err, readAt: at}
	c.known.Add(id, entry)
	return entry, nil
}
