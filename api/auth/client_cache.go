package auth

import (
	"context"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"partnerbilling/models"
	"partnerbilling/models/coalesce"
)

// RevocationDelay is the longest time until a change of a client takes effect in every process: its
// disabling, a removed credential, new scopes or addresses. The contract with partners allows a
// minute.
const RevocationDelay = 30 * time.Second

// The bounds of the cache of clients.
const (
	clientFreshFor    = 15 * time.Second // afterwards, a client is read again
	clientUsableFor   = RevocationDelay  // the limit while Postgres does not respond
	clientReadTimeout = 2 * time.Second
	clientRetryEvery  = time.Second // after a failed read
	clientCacheSize   = 10_000
)

// clientCache caches clients, and which ids are unknown, for clientFreshFor. It is safe for
// concurrent use.
type clientCache struct {
	store   *models.Store
	now     func() time.Time
	known   *lru.Cache[models.ClientID, cachedClient]
	reading coalesce.SingleFlight[cachedClient]
}

// knownClient is a client with the fingerprints of its live credentials: secrets and public keys.
type knownClient struct {
	models.Client
	credentials []string
}

type cachedClient struct {
	client  knownClient
	err     error // nil or models.ErrNotFound
	readAt  time.Time
	triedAt time.Time // when a read last failed since readAt; zero: never
}

func newClientCache(store *models.Store, now func() time.Time) *clientCache {
	known, err := lru.New[models.ClientID, cachedClient](clientCacheSize)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &clientCache{
		store: store, now: now, known: known,
		reading: coalesce.SingleFlight[cachedClient]{Timeout: clientReadTimeout},
	}
}

// get returns a client, or models.ErrNotFound. The result is at most clientFreshFor old, or
// clientUsableFor while Postgres does not respond.
func (c *clientCache) get(ctx context.Context, id models.ClientID) (knownClient, error) {
	entry, ok := c.known.Get(id)
	usable := func(now time.Time) bool { return ok && now.Sub(entry.readAt) < clientUsableFor }
	now := c.now()
	fresh := ok && now.Sub(entry.readAt) < clientFreshFor
	if fresh || usable(now) && now.Sub(entry.triedAt) < clientRetryEvery {
		return entry.client, entry.err
	}
	read, err := c.reread(ctx, id)
	if err == nil {
		return read.client, read.err
	}
	if now = c.now(); usable(now) && ctx.Err() == nil { // the read may have taken clientReadTimeout
		entry.triedAt = now
		c.known.Add(id, entry)
		return entry.client, entry.err
	}
	return knownClient{}, err
}

// getSince returns a client that was read after the given time or after the call began, or
// models.ErrNotFound.
func (c *clientCache) getSince(ctx context.Context, id models.ClientID, at time.Time) (knownClient, error) {
	if entry, ok := c.known.Get(id); ok && entry.readAt.After(at) {
		return entry.client, entry.err
	}
	called := c.now()
	fresh, err := c.reread(ctx, id)
	if err == nil && fresh.readAt.Before(called) { // the call has joined an older read
		fresh, err = c.reread(ctx, id)
	}
	if err != nil {
		return knownClient{}, err
	}
	return fresh.client, fresh.err
}

// reread reads a client from Postgres once for all callers that wait for it.
func (c *clientCache) reread(ctx context.Context, id models.ClientID) (cachedClient, error) {
	return c.reading.Do(ctx, id.String(), func(ctx context.Context) (cachedClient, error) { return c.read(ctx, id) })
}

// read reads a client from Postgres into the cache.
func (c *clientCache) read(ctx context.Context, id models.ClientID) (cachedClient, error) {
	at := c.now()
	stored, err := c.store.ClientCredentials(ctx, id)
	if err != nil && !errors.Is(err, models.ErrNotFound) {
		if ctx.Err() != nil {
			err = errors.Join(models.ErrUnavailable, err)
		}
		return cachedClient{}, err
	}
	client := knownClient{stored.Client, stored.Fingerprints()}
	keys, malformed := KeyFingerprints(stored.JWKS)
	if malformed == nil { // otherwise no key obtains a token
		client.credentials = append(client.credentials, keys...)
	}
	entry := cachedClient{client: client, err: err, readAt: at}
	c.known.Add(id, entry)
	return entry, nil
}
