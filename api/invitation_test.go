package api_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"partnerbilling/models"
)

func TestInvitationAnswers(t *testing.T) {
	b := newBilling(t, nil)
	made := b.Post(b.customers("/invitations"), `{"customerReference":"acct/7 é#1","unknown":[1]}`).Expect(201)
	golden(t, "invitation-created", made)
	if got, want := made.Header.Get("Location"), b.customers("/acct%2F7%20%C3%A9%231"); got != want {
		t.Errorf("Location %q, want %q", got, want)
	}
	b.Get(made.Header.Get("Location")).Expect(200)

	again := b.Post(b.customer("acct/7 é#1", "/invitation-link"), nil).Expect(200)
	golden(t, "invitation-resent", again)
	var first, second invitation
	if made.Data(&first); again.Data(&second).Status != 200 || first != second {
		t.Errorf("resent %+v, want %+v", second, first)
	}
	golden(t, "invitation-active", b.Post(b.customers("/invitations"), `{"customerReference":"acct/7 é#1"}`).
		Expect(409))
	golden(t, "invitation-none-live", b.Post(b.customer("nobody", "/invitation-link"), nil).Expect(409))
	golden(t, "invitation-missing-field", b.Post(b.customers("/invitations"), `{"customerReference":null}`).Expect(400))
	golden(t, "invitation-invalid-field",
		b.Post(b.customers("/invitations"), `{"customerReference":"..","expiresAt":"soon"}`).Expect(400))
	golden(t, "invitation-invalid-expiry",
		b.Post(b.customers("/invitations"), `{"customerReference":"r","expiresAt":1}`).Expect(400))
	b.Post(b.customers("/invitations"), `{"customerReference":"..","expiresAt":1}`).Refused(400,
		"invitations:invalid-field customerReference", "invitations:invalid-field expiresAt")
	b.Post(b.customers("/invitations"), `{"customerReference":"r","expiresAt":-1}`).Refused(400,
		"invitations:invalid-field expiresAt")
	b.Post(b.customers("/invitations"), map[string]any{"customerReference": "..", "expiresAt": noon.Add(time.Hour)}).
		Refused(400, "invitations:invalid-field customerReference")
}

func TestInvitationExpiry(t *testing.T) {
	b := newBilling(t, nil)
	create := func(reference string, expiresAt any) int {
		return b.Post(b.customers("/invitations"),
			map[string]any{"customerReference": reference, "expiresAt": expiresAt}).Status
	}
	for i, row := range []struct {
		expiresAt any
		status    int
	}{
		{nil, 201}, {noon.Add(5 * time.Minute), 201}, {noon.Add(5*time.Minute) - 1, 400},
		{noon.Add(30 * 24 * time.Hour), 201}, {noon.Add(30*24*time.Hour) + 1, 400},
		{0, 400}, {-1, 400}, {"1790000600000", 400}, {true, 400}, {models.MaxAmount, 400},
	} {
		if got := create(fmt.Sprint(i), row.expiresAt); got != row.status {
			t.Errorf("expiresAt %v: %d, want %d", row.expiresAt, got, row.status)
		}
	}
	b.advance(t, week)
	if got := create("0", nil); got != 201 {
		t.Errorf("after the expiry of the last one: %d", got)
	}
}

func TestInvitationsOfSitesAreApart(t *testing.T) {
	b := newBilling(t, nil)
	b.invite(t, "r")
	b.Post("/billing/sites/"+b.sister.String()+"/customers/invitations", `{"customerReference":"r"}`).Expect(201)
	b.other.Post(b.customers("/invitations"), `{"customerReference":"r"}`).
		Refused(403, "sites:site-not-accessible siteId")
	b.other.Get(b.customer("r", "")).Refused(403, "sites:site-not-accessible siteId")
	b.other.Get("/billing/sites/"+b.otherSite.String()+"/customers/r").
		Refused(404, "customers:customer-not-found customerReference")
}

func TestInvitationIdempotency(t *testing.T) {
	b := newBilling(t, nil)
	keyed := b.With("Idempotency-Key", "k-1")
	made := keyed.Post(b.customers("/invitations"), `{"customerReference":"r"}`).Expect(201)
	if got := made.Header.Get("Idempotent-Replayed"); got != "" {
		t.Errorf("the first answer has Idempotent-Replayed: %q", got)
	}
	b.Post(b.customer("r", "/revocation"), nil).Expect(200)
	b.advance(t, 24*time.Hour-time.Millisecond)
	again := keyed.Post(b.customers("/invitations"), `{ "customerReference": "\u0072" }`).Expect(201)
	var first, second invitation
	made.Data(&first)
	again.Data(&second)
	if first != second || again.Header.Get("Idempotent-Replayed") != "true" ||
		again.Header.Get("Location") != made.Header.Get("Location") {
		t.Errorf("replayed %+v %v, want %+v", second, again.Header, first)
	}
	golden(t, "idempotency-key-reused",
		keyed.Post(b.customers("/invitations"), `{"customerReference":"r","note":1}`).Expect(422))
	keyed.Post("/billing/sites/"+b.sister.String()+"/customers/invitations", `{"customerReference":"r"}`).Expect(201)
	b.advance(t, time.Millisecond)
	fresh := keyed.Post(b.customers("/invitations"), `{"customerReference":"r","note":1}`).Expect(201)
	if fresh.Header.Get("Idempotent-Replayed") != "" {
		t.Error("replayed after 24 hours")
	}
	for _, key := range []string{"", "a b", strings.Repeat("k", 256)} {
		b.With("Idempotency-Key", key).Post(b.customers("/invitations"), `{"customerReference":"z"}`).
			Refused(400, "requests:invalid-header Idempotency-Key")
	}
}

// An Idempotency-Key belongs to route and Site, however the path encodes them.
func TestIdempotencyKeyIgnoresPathEncoding(t *testing.T) {
	b := newBilling(t, nil)
	encoded := encodeAll(b.site.String())
	for i, path := range []string{"/billing/sites/%s/customers/invitations", "/checkout/%s/payment-intent"} {
		keyed := b.With("Idempotency-Key", "k")
		body := fmt.Sprintf(`{"customerReference":"r%d","amount":1}`, i)
		first := keyed.Post(fmt.Sprintf(path, b.site), body).Expect(201)
		again := keyed.Post(fmt.Sprintf(path, encoded), body).Expect(201)
		if again.Header.Get("Idempotent-Replayed") != "true" ||
			again.Header.Get("Location") != first.Header.Get("Location") {
			t.Errorf("%s: %v, then %v", path, first.Header, again.Header)
		}
		keyed.Post(fmt.Sprintf(path, encoded), `{"customerReference":"other","amount":2}`).Expect(422)
		sister := keyed.Post(fmt.Sprintf(path, b.sister), body).Expect(201)
		if sister.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s: replayed on another Site", path)
		}
	}
}

// While the first request waits for a lock in Postgres, the second one is refused at once.
func TestInvitationIdempotencyInFlight(t *testing.T) {
	b := newBilling(t, nil)
	rival, err := b.store.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = rival.ExecContext(t.Context(), `
		INSERT INTO customer_links (site_id, id, customer_reference, invited_at, expires_at, key_id)
		VALUES (?, gen_random_uuid(), 'r', 1, ?, gen_random_uuid())`, b.site, noon+1)
	if err != nil {
		t.Fatal(err)
	}
	keyed := b.With("Idempotency-Key", "k-1")
	var first sync.WaitGroup
	first.Go(func() {
		answer, err := keyed.Try(t.Context(), "POST", b.customers("/invitations"), `{"customerReference":"r"}`)
		if err != nil || answer.Status != 201 {
			t.Errorf("the first request: %v %v", answer, err)
		}
	})
	b.untilLockAwaited(t)
	second := keyed.Post(b.customers("/invitations"), `{"customerReference":"r"}`)
	golden(t, "idempotency-key-in-flight", second.Expect(409))
	if err := rival.Rollback(); err != nil {
		t.Fatal(err)
	}
	first.Wait()
	replay := keyed.Post(b.customers("/invitations"), `{"customerReference":"r"}`).Expect(201)
	if replay.Header.Get("Idempotent-Replayed") != "true" {
		t.Error("not replayed")
	}
}

// untilLockAwaited returns once a transaction waits for the lock of another one.
func (b *billing) untilLockAwaited(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for waiting := 0; waiting == 0; {
		err := b.store.DB().QueryRowContext(ctx, `
			SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestConcurrentInvitations(t *testing.T) {
	b := newBilling(t, nil)
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for range 20 {
		all.Go(func() {
			answer, err := b.Try(t.Context(), "POST", b.customers("/invitations"), `{"customerReference":"r"}`)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			statuses[answer.Status]++
		})
	}
	all.Wait()
	if statuses[201] != 1 || statuses[409] != 19 {
		t.Errorf("statuses %v", statuses)
	}
}
