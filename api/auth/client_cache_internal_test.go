package auth

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// waitingContext calls waits when a caller begins to wait for its end.
type waitingContext struct {
	context.Context
	waits func()
}

// Done implements context.Context.
func (c waitingContext) Done() <-chan struct{} {
	c.waits()
	return c.Context.Done()
}

// A client with a new credential is read after the credential was added, also while an older read
// is still under way.
func TestGetSinceJoinsNoOlderRead(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	organisation, err := store.CreateOrganisation(t.Context(), "Harbour Power")
	if err != nil {
		t.Fatal(err)
	}
	client, err := store.CreateClient(t.Context(), organisation.ID, "test", models.PartnerScopes)
	if err != nil {
		t.Fatal(err)
	}
	cache := newClientCache(store, time.Now)
	read, finish, older := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := cache.reading.Do(t.Context(), client.ID.String(), func(ctx context.Context) (cachedClient, error) {
			entry, err := cache.read(ctx, client.ID)
			close(read)
			<-finish
			return entry, err
		})
		older <- err
	}()
	<-read
	secret, err := store.AddClientSecret(t.Context(), client.ID)
	if err != nil {
		t.Fatal(err)
	}
	ctx := waitingContext{t.Context(), sync.OnceFunc(func() { close(finish) })}
	known, err := cache.getSince(ctx, client.ID, time.Now().Add(leeway))
	if err != nil || len(known.credentials) != 1 || known.credentials[0] != models.FingerprintOf(secret) {
		t.Errorf("credentials %v, %v", known.credentials, err)
	}
	if err := <-older; err != nil {
		t.Errorf("the older read: %v", err)
	}
}

// hangingReads returns a cache that has read a client at the given age, while Postgres hangs: each
// read fails after clientReadTimeout. get calls the cache, and reports whether it has read.
func hangingReads(age time.Duration) (clock *time.Time, get func(*testing.T) (read bool, err error)) {
	now := time.Unix(1_800_000_000, 0)
	cache := newClientCache(nil, func() time.Time { return now })
	id := models.ClientID{1}
	cache.known.Add(id, cachedClient{readAt: now.Add(-age)})
	return &now, func(t *testing.T) (read bool, err error) {
		t.Helper()
		finish, ended := make(chan struct{}), make(chan struct{})
		joined := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = cache.reading.Do(context.Background(), id.String(), func(context.Context) (cachedClient, error) {
				close(joined)
				<-finish
				return cachedClient{}, models.ErrUnavailable
			})
		}()
		<-joined
		end := sync.OnceFunc(func() { close(finish) })
		_, err = cache.get(waitingContext{t.Context(), sync.OnceFunc(func() {
			read = true
			now = now.Add(clientReadTimeout)
			end()
		})}, id)
		end()
		<-ended
		return read, err
	}
}

// The pause between reads begins at the end of a failed read, which takes longer than the pause.
func TestClientCachePausesAfterAFailedRead(t *testing.T) {
	t.Parallel()
	clock, get := hangingReads(clientFreshFor)
	for _, step := range []struct {
		after time.Duration
		read  bool
	}{{0, true}, {clientRetryEvery - 1, false}, {1, true}} {
		*clock = clock.Add(step.after)
		if read, err := get(t); read != step.read || err != nil {
			t.Errorf("%v later: read %t, %v", step.after, read, err)
		}
	}
}

// A client is used for clientUsableFor and no longer, even if a read fails only after that.
func TestClientCacheUsesNoClientForTooLong(t *testing.T) {
	t.Parallel()
	_, get := hangingReads(clientUsableFor - clientReadTimeout)
	if read, err := get(t); !read || !errors.Is(err, models.ErrUnavailable) {
		t.Errorf("read %t, %v", read, err)
	}
	_, get = hangingReads(clientUsableFor - clientReadTimeout - 1)
	if read, err := get(t); !read || err != nil {
		t.Errorf("a moment earlier: read %t, %v", read, err)
	}
}
