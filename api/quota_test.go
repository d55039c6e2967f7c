package api_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"partnerbilling/api/apitest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// newBounded returns a billing with quotas, and a function that expires the cached usage.
func newBounded(t *testing.T, quotas models.Quotas) (*billing, func()) {
	t.Parallel()
	var minutes atomic.Int64
	store, err := models.Open(postgres.Config{DSN: modelstest.DSN(t)})
	check(t, err)
	store.SetKeyring(modelstest.Keyring(t, modelstest.MasterKey))
	store.SetQuotas(quotas, func() time.Time { return time.Unix(60*minutes.Load(), 0) })
	t.Cleanup(func() { check(t, store.Close()) })
	return newBillingOn(t, store, nil), func() { minutes.Add(1) }
}

// wantRetryAfter checks the answer's Retry-After.
func wantRetryAfter(t *testing.T, a *apitest.Answer, want string) {
	t.Helper()
	if got := a.Header.Get("Retry-After"); got != want {
		t.Errorf("Retry-After %q, want %q", got, want)
	}
}

func TestQuotaOfOpenRows(t *testing.T) {
	b, age := newBounded(t, models.Quotas{OpenRows: 3})
	first := b.Post(b.batches(""), bodyOf("first", "ada", "bob")).Expect(202)
	for range 2 {
		refused := b.Post(b.batches(""), bodyOf("second", "ada", "bob")).Expect(http.StatusTooManyRequests)
		wantRetryAfter(t, refused, "10")
		golden(t, "quota-open-rows", refused)
		b.Post(b.batches(""), `{"batchReference":"second","rows":[]}`).Refused(400, "batches:invalid-field rows")
		b.Post(b.batches("/validation"), bodyOf("second", "ada", "bob")).Expect(200)
		again := b.Post(b.batches(""), bodyOf("first", "ada", "bob")).Expect(202)
		if again.Header.Get("Idempotent-Replayed") != "true" || dataOf[receipt](again) != dataOf[receipt](first) {
			t.Errorf("submitted again: %s", again.Body)
		}
		b.Post(b.batches(""), bodyOf("first", "eve", "bob")).
			Refused(409, "batches:batch-reference-conflict batchReference",
				"batches:batch-reference-conflict rows[0].customerReference")
		age()
	}
	b.Post("/billing/sites/"+b.sister.String()+"/batches", bodyOf("first", "ada", "bob")).
		Refused(429, "requests:quota-exceeded")
	b.other.Post("/billing/sites/"+b.otherSite.String()+"/batches", bodyOf("first", "ada", "bob")).Expect(202)
	b.Post(b.batches(""), bodyOf("second", "ada")).Expect(202)

	b.Post(b.batch("first", "/cancellation"), nil).Expect(200)
	b.Post(b.batch("first", "/retry"), `{"batchReference":"retry"}`).
		Refused(409, "batches:nothing-to-retry batchReference")
}

func TestQuotaOfEvents(t *testing.T) {
	b, age := newBounded(t, models.Quotas{Events: 1})
	keyed := b.With("Idempotency-Key", "k")
	first := keyed.Post(b.intents(""), `{"amount":1}`).Expect(201)
	for range 2 {
		refused := b.Post(b.intents(""), `{"amount":1}`).Expect(http.StatusTooManyRequests)
		wantRetryAfter(t, refused, "60")
		golden(t, "quota-events", refused)
		complains(t, b.With("Idempotency-Key", "other").Post(b.intents(""), `{"amount":1}`), 429,
			"Your organisation's quota of webhook events and open payment intents (1) would be exceeded.")
		again := keyed.Post(b.intents(""), `{"amount":1}`).Expect(201)
		if again.Header.Get("Idempotent-Replayed") != "true" || string(again.Body) == string(first.Body) {
			t.Errorf("created again: %s", again.Body)
		}
		complains(t, keyed.Post(b.intents(""), `{"amount":2}`), 422,
			"This Idempotency-Key was used before with another body.")
		age()
	}
	id := dataOf[createdIntent](first).PaymentIntentID
	b.Post(b.intents("/"+id+"/cancellation"), nil).Expect(200) // every final status creates an event
	if n := dataOf[eventPage](b.Get("/webhooks/events").Expect(200)).TotalItems; n != 1 {
		t.Errorf("%d events", n)
	}
	b.other.Post("/checkout/"+b.otherSite.String()+"/payment-intent", `{"amount":1}`).Expect(201)
}

func TestQuotaOfInvitations(t *testing.T) {
	b, age := newBounded(t, models.Quotas{Invitations: 1})
	keyed := b.With("Idempotency-Key", "k")
	first := keyed.Post(b.customers("/invitations"), `{"customerReference":"ada"}`).Expect(201)
	for range 2 {
		refused := b.Post(b.customers("/invitations"), `{"customerReference":"bob"}`).Expect(http.StatusTooManyRequests)
		wantRetryAfter(t, refused, "60")
		golden(t, "quota-invitations", refused)
		again := keyed.Post(b.customers("/invitations"), `{"customerReference":"ada"}`).Expect(201)
		if dataOf[invitation](again) != dataOf[invitation](first) {
			t.Errorf("invited again: %s", again.Body)
		}
		b.Post(b.customer("ada", "/invitation-link"), nil).Expect(200)
		age()
	}
	b.Post("/sandbox/sites/"+b.site.String()+"/customers/ada/signup", nil).Expect(200)
	age()
	b.Post(b.customers("/invitations"), `{"customerReference":"bob"}`).Expect(201)
}

func TestQuotaOfEndpoints(t *testing.T) {
	b, _ := newBounded(t, models.Quotas{Endpoints: 1})
	put := func(endpoint, path string) *apitest.Answer {
		return b.Send("PUT", "/webhooks/endpoints/"+endpoint, fmt.Sprintf(`{"url":"https://example.com/%s"}`, path))
	}
	put(b.site.String(), "a").Expect(201)
	refused := put("default", "a").Expect(http.StatusTooManyRequests)
	wantRetryAfter(t, refused, "60")
	golden(t, "quota-endpoints", refused)
	put(b.site.String(), "b").Expect(200)
	b.Send("DELETE", "/webhooks/endpoints/"+b.site.String(), nil).Expect(200)
	put("default", "a").Expect(200)
}

// Concurrent requests do not exceed a quota.
func TestQuotaUnderConcurrency(t *testing.T) {
	b, _ := newBounded(t, models.Quotas{OpenRows: 10, Events: 10, Invitations: 10})
	const n = 40
	answers := make(chan *apitest.Answer, 3*n)
	for i := range n {
		for path, body := range map[string]string{
			b.batches(""):               bodyOf(fmt.Sprint(i), "ada"),
			b.intents(""):               `{"amount":1}`,
			b.customers("/invitations"): fmt.Sprintf(`{"customerReference":"%d"}`, i),
		} {
			go func() { answers <- b.Post(path, body) }()
		}
	}
	statuses := map[int]int{}
	for range 3 * n {
		statuses[(<-answers).Status]++
	}
	if statuses[202] != 10 || statuses[201] != 20 || statuses[429] != 3*(n-10) {
		t.Errorf("answers by status: %v", statuses)
	}
}
