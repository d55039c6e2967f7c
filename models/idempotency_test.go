package models_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"partnerbilling/models"
)

func newKey(body string) *models.IdempotencyKey {
	return &models.IdempotencyKey{ClientID: models.ClientID(uuid.MustParse("01932c07-0000-7000-8000-000000000001")),
		Path: "/invitations", Key: "k1", Fingerprint: []byte(body)}
}

func (c *customers) createOnce(
	t testing.TB, reference string, key *models.IdempotencyKey,
) (models.CustomerLink, bool, error) {
	t.Helper()
	return c.store.CreateInvitation(t.Context(), models.NewInvitation{
		SiteID: c.site, CustomerReference: reference, KeyID: c.key}, key)
}

func TestIdempotencyKeyReplays(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	first, replayed, err := c.createOnce(t, "r", newKey("body"))
	must(t, err)
	if replayed {
		t.Error("the first request is a replay")
	}
	replay := func() {
		t.Helper()
		again, replayed, err := c.createOnce(t, "r", newKey("body"))
		must(t, err)
		if diff := cmp.Diff(first, again); !replayed || diff != "" {
			t.Errorf("replayed %v: %s", replayed, diff)
		}
	}
	replay()
	_, err = c.complete(t, first, alice) // what became of the link does not change the answer
	must(t, err)
	replay()
	_, err = c.store.RevokeCustomer(t.Context(), c.site, "r")
	must(t, err)
	replay()
	c.advance(t, models.IdempotencyKeyLife-time.Millisecond)
	replay()
}

func TestIdempotencyKeyIsOverAfterItsLife(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	_, _, err := c.createOnce(t, "r", newKey("body"))
	must(t, err)
	c.advance(t, models.IdempotencyKeyLife)
	_, _, err = c.createOnce(t, "r", newKey("body"))
	wantError(t, err, models.ErrCustomerReferenceActive) // a new request in its own right
	second, replayed, err := c.createOnce(t, "s", newKey("other body"))
	must(t, err)
	if replayed {
		t.Error("replayed after its life")
	}
	c.advance(t, time.Hour)
	again, replayed, err := c.createOnce(t, "s", newKey("other body"))
	must(t, err)
	if !replayed || again.ID != second.ID {
		t.Errorf("replayed %v, link %v, want %v", replayed, again.ID, second.ID)
	}
}

func TestIdempotencyKeyReused(t *testing.T) {
	c := newCustomers(t)
	_, _, err := c.createOnce(t, "r", newKey("body"))
	must(t, err)
	_, _, err = c.createOnce(t, "s", newKey("another body"))
	wantError(t, err, models.ErrIdempotencyKeyReused)

	for name, change := range map[string]func(*models.IdempotencyKey){
		"client": func(k *models.IdempotencyKey) { k.ClientID = models.ClientID(uuid.New()) },
		"path":   func(k *models.IdempotencyKey) { k.Path += "/" },
		"key":    func(k *models.IdempotencyKey) { k.Key = "K1" },
	} {
		key := newKey("another body")
		change(key)
		if _, replayed, err := c.createOnce(t, "by "+name, key); err != nil || replayed {
			t.Errorf("another %s: replayed %v, %v", name, replayed, err)
		}
	}
}

func TestIdempotencyKeyKeepsNoFailure(t *testing.T) {
	c := newCustomers(t)
	c.invite(t, "r")
	_, _, err := c.createOnce(t, "r", newKey("body"))
	wantError(t, err, models.ErrCustomerReferenceActive)
	_, err = c.store.RevokeCustomer(t.Context(), c.site, "r")
	must(t, err)
	if _, replayed, err := c.createOnce(t, "r", newKey("body")); err != nil || replayed {
		t.Errorf("replayed %v, %v", replayed, err)
	}
}

func TestIdempotencyKeyAtOnce(t *testing.T) {
	c := newCustomers(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	made := map[models.LinkID]int{}
	fresh := 0
	for range 30 {
		all.Go(func() {
			link, replayed, err := c.createOnce(t, "r", newKey("body"))
			if errors.Is(err, models.ErrIdempotencyKeyInFlight) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("create: %v", err)
			}
			made[link.ID]++
			if !replayed {
				fresh++
			}
		})
	}
	all.Wait()
	if len(made) != 1 || fresh != 1 {
		t.Errorf("%d links, %d of them fresh, want one", len(made), fresh)
	}
}

func TestPurgeIdempotencyKeys(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	for _, name := range []string{"a", "b", "c"} {
		key := newKey("body")
		key.Key = name
		_, _, err := c.createOnce(t, name, key)
		must(t, err)
	}
	c.advance(t, models.IdempotencyKeyLife-time.Millisecond)
	for _, want := range []int{0, 2, 1, 0} {
		n, err := c.store.PurgeIdempotencyKeys(t.Context(), 2)
		must(t, err)
		if n != want {
			t.Errorf("purged %d, want %d", n, want)
		}
		c.advance(t, time.Millisecond)
	}
}

func TestIdempotencyKeyInFlight(t *testing.T) {
	c := newCustomers(t)
	tx, err := c.store.DB().BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT pg_advisory_xact_lock(?)", newKey("body").LockForTest())
	must(t, err)
	_, _, err = c.createOnce(t, "r", newKey("body"))
	wantError(t, err, models.ErrIdempotencyKeyInFlight)
	must(t, tx.Rollback()) // the other request failed: nothing is kept
	_, replayed, err := c.createOnce(t, "r", newKey("body"))
	must(t, err)
	if replayed {
		t.Error("replayed what never was")
	}
}
