package auth

import (
	"context"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"partnerbilling/models"
)

// How long a process trusts what it has read of a client. A disabled client's tokens end within clientUsableFor in
// every process.
const (
	clientFreshFor    = 15 * time.Second
	clientUsableFor   = 30 * time.Second // while Postgres does not answer
	clientReadTimeout = 2 * time.Second
	clientRetryEvery  = time.Second
	clientCacheSize   = 10_000
)

// clientCache remembers clients for a few seconds, those that do not exist included.
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
	triedAt time.Time // when a read failed since; zero: none did
}

func newClientCache(store *models.Store, now func() time.Time) *clientCache {
	known, err := lru.New[models.ClientID, cachedClient](clientCacheSize)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &clientCache{store: store, now: now, known: known}
}

// get is the client, as it was at most clientUsableFor ago; models.ErrNotFound if there is none.
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

// read asks Postgres on behalf of everyone who waits, so one caller's end does not spoil it.
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
