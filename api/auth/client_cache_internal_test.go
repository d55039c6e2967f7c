package auth

import (
	"context"
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
