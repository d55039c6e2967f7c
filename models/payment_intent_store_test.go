package models_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// checkout is a Site with a frozen service clock.
type checkout struct {
	*testing.T
	store *models.Store
	site  models.Site
}

func newCheckout(t *testing.T) *checkout {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	return &checkout{t, store, modelstest.Site(t, store)}
}

func (c *checkout) get(intent models.PaymentIntent) models.PaymentIntent {
	c.Helper()
	got, err := c.store.PaymentIntent(c.Context(), intent.SiteID, intent.ID)
	if err != nil {
		c.Fatal(err)
	}
	return got
}

// want checks an intent's state and status, and its events.
func (c *checkout) want(intent models.PaymentIntent, state models.IntentState, status models.TransactionStatus) {
	c.Helper()
	if got := c.get(intent); got.State != state || got.Status != status {
		c.Errorf("the intent is %s %s, want %s %s", got.State, got.Status, state, status)
	}
	var events []models.TransactionStatus
	if status != "" {
		events = append(events, status)
	}
	if got := modelstest.PushedStatuses(c, c.store, intent.ID); !slices.Equal(got, events) {
		c.Errorf("the events say %v, want %v", got, events)
	}
}

func TestPaymentIntentLife(t *testing.T) {
	c := newCheckout(t)
	in := models.NewPaymentIntent{
		SiteID: c.site.ID, Amount: models.MaxAmount, OrderID: "ord <&> é \u2028", QRCodeFormat: models.QRCodeBase64,
		LineItems: []models.LineItem{
			{ItemID: "coffee", Quantity: 9007199254740991, AmountPerUnit: 0, AmountSubtotal: models.MaxAmount,
				AddOns: &models.AddOns{Customizations: "<b>", Modifiers: []string{"oat", "🦆"}}},
			{ItemID: "tea", Quantity: 2, AmountPerUnit: 3, AmountSubtotal: 6},
		},
	}
	trace := models.NewTraceID()
	made, replayed, err := c.store.CreatePaymentIntent(models.WithTraceID(t.Context(), trace), in, nil)
	if err != nil || replayed {
		t.Fatal(replayed, err)
	}
	want := models.PaymentIntent{
		SiteID: c.site.ID, ID: made.ID, OrganisationID: c.site.OrganisationID, Code: made.Code, Amount: in.Amount,
		Currency: "AUD",
		OrderID:  in.OrderID, LineItems: in.LineItems, QRCodeFormat: in.QRCodeFormat, State: models.IntentCreated,
		CreatedAt: noon, ExpiresAt: noon.Add(15 * time.Minute), TraceID: trace,
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, c.get(made)); diff != "" {
		t.Error(diff)
	}
	byCode, payee, err := c.store.PaymentIntentByCode(t.Context(), made.Code)
	if diff := cmp.Diff(want, byCode); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if payee.OrganisationName == "" || payee.SiteName == "" {
		t.Errorf("payee %+v", payee)
	}
	c.want(made, models.IntentCreated, "")
}

func TestPaymentIntentExpiryLimits(t *testing.T) {
	c := newCheckout(t)
	for at, ok := range map[models.Millis]bool{
		0: true, 1: false, noon: false, noon.Add(time.Minute) - 1: false, noon.Add(time.Minute): true,
		noon.Add(24 * time.Hour): true, noon.Add(24*time.Hour) + 1: false, models.Millis(models.MaxAmount): false,
	} {
		_, _, err := c.store.CreatePaymentIntent(t.Context(), models.NewPaymentIntent{
			SiteID: c.site.ID, Amount: 1, QRCodeFormat: models.QRCodeText, ExpiresAt: at}, nil)
		var field *models.FieldError
		if (err == nil) != ok || err != nil && (!errors.As(err, &field) || field.Field != "expiresAt") {
			t.Errorf("expiresAt %d: %v", at, err)
		}
	}
}

func TestCreatePaymentIntentOfAnUnknownSite(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	in := models.NewPaymentIntent{SiteID: models.SiteID{1}, Amount: 1, QRCodeFormat: models.QRCodeText}
	key := &models.IdempotencyKey{ClientID: models.ClientID(uuid.New()), Path: "/p", Key: "k", Fingerprint: []byte("1")}
	for _, key := range []*models.IdempotencyKey{nil, key} {
		if _, _, err := store.CreatePaymentIntent(t.Context(), in, key); !errors.Is(err, models.ErrNotFound) {
			t.Errorf("with the key %v: %v", key, err)
		}
	}
}

func TestPaymentIntentsAreFoundInTheirSitesOnly(t *testing.T) {
	c := newCheckout(t)
	other := modelstest.Site(t, c.store)
	intent := modelstest.Intent(t, c.store, c.site.ID, 100)
	find := func(err error) bool { return !errors.Is(err, models.ErrNotFound) }
	for what, found := range map[string][2]bool{
		"its Site": {true, find(second(c.store.PaymentIntent(t.Context(), c.site.ID, intent.ID)))},
		"another":  {false, find(second(c.store.PaymentIntent(t.Context(), other.ID, intent.ID)))},
		"another's cancellation": {false, find(func() error {
			_, _, err := c.store.CancelPaymentIntent(t.Context(), other.ID, intent.ID)
			return err
		}())},
		"its organisation": {true, find(second(c.store.OrganisationPaymentIntent(t.Context(), c.site.OrganisationID,
			intent.ID)))},
		"another organisation": {false, find(second(c.store.OrganisationPaymentIntent(t.Context(), other.OrganisationID,
			intent.ID)))},
		"an unknown code": {false, find(func() error {
			_, _, err := c.store.PaymentIntentByCode(t.Context(), models.NewIntentCode())
			return err
		}())},
		"a payment of an unknown code": {false, find(second(
			c.store.StartTransaction(t.Context(), models.NewIntentCode(),
				models.Party{CustomerID: "c", AgreementID: "a"},
				nil)))},
	} {
		if found[0] != found[1] {
			t.Errorf("by %s: found %t", what, found[1])
		}
	}
	c.want(intent, models.IntentCreated, "")
}

func second[T any](_ T, err error) error { return err }

func TestPaymentIntentIdempotency(t *testing.T) {
	c := newCheckout(t)
	key := &models.IdempotencyKey{ClientID: models.ClientID(uuid.New()), Path: "/p", Key: "k", Fingerprint: []byte("1")}
	in := models.NewPaymentIntent{SiteID: c.site.ID, Amount: 5, QRCodeFormat: models.QRCodeText}
	first, replayed, err := c.store.CreatePaymentIntent(t.Context(), in, key)
	if err != nil || replayed {
		t.Fatal(replayed, err)
	}
	again, replayed, err := c.store.CreatePaymentIntent(t.Context(), in, key)
	if diff := cmp.Diff(first, again); diff != "" || err != nil || !replayed {
		t.Error(diff, replayed, err)
	}
	key.Fingerprint = []byte("2")
	if _, _, err := c.store.CreatePaymentIntent(t.Context(), in, key); !errors.Is(err, models.ErrIdempotencyKeyReused) {
		t.Error(err)
	}
}

func TestCancelPaymentIntent(t *testing.T) {
	c := newCheckout(t)
	intent := modelstest.Intent(t, c.store, c.site.ID, 100)
	for range 2 {
		cancelled, _, err := c.store.CancelPaymentIntent(t.Context(), c.site.ID, intent.ID)
		if err != nil || cancelled.Status != models.TransactionCancelled || cancelled.FinalAt != noon {
			t.Errorf("%+v, %v", cancelled, err)
		}
		c.want(intent, models.IntentFinal, models.TransactionCancelled)
	}
	_, err := c.store.StartTransaction(t.Context(), intent.Code,
		modelstest.Payer(t, c.store, models.BehaviourPays), nil)
	if !errors.Is(err, models.ErrIntentCancelled) {
		t.Errorf("a payment: %v", err)
	}

	pending := modelstest.Intent(t, c.store, c.site.ID, 100)
	modelstest.Pay(t, c.store, pending, modelstest.Payer(t, c.store, models.BehaviourPays))
	late := modelstest.Intent(t, c.store, c.site.ID, 100)
	for _, i := range []models.PaymentIntent{pending, late} {
		if i.ID == late.ID {
			modelstest.AdvanceClock(t, c.store, models.DefaultIntentLife)
		}
		if _, _, err := c.store.CancelPaymentIntent(t.Context(), c.site.ID, i.ID); !errors.Is(err,
			models.ErrIntentNotCancellable) {
			t.Errorf("a cancellation: %v", err)
		}
	}
	c.want(pending, models.IntentPending, "")
	c.want(late, models.IntentFinal, models.TransactionExpired)
	modelstest.Audit(t, c.store)
}

// The first reader, sweep or customer at the millisecond of expiry finds the intent expired, with
// its one event.
func TestPaymentIntentExpires(t *testing.T) {
	looks := map[string]func(c *checkout, intent models.PaymentIntent) error{
		"get": func(c *checkout, intent models.PaymentIntent) error {
			return second(c.store.PaymentIntent(c.Context(), c.site.ID, intent.ID))
		},
		"get by code": func(c *checkout, intent models.PaymentIntent) error {
			got, _, err := c.store.PaymentIntentByCode(c.Context(), intent.Code)
			if err == nil && got.Status != models.TransactionExpired {
				return fmt.Errorf("it is %s", got.Status)
			}
			return err
		},
		"sweep": func(c *checkout, _ models.PaymentIntent) error {
			n, err := c.store.ExpirePaymentIntents(c.Context(), 10)
			if n != 1 && err == nil {
				return fmt.Errorf("%d swept", n)
			}
			return err
		},
		"payment": func(c *checkout, intent models.PaymentIntent) error {
			_, err := c.store.StartTransaction(c.Context(), intent.Code,
				models.Party{CustomerID: "c", AgreementID: "a"}, nil)
			if errors.Is(err, models.ErrIntentExpired) {
				return nil
			}
			return fmt.Errorf("not expired: %w", err)
		},
		"cancellation": func(c *checkout, intent models.PaymentIntent) error {
			_, _, err := c.store.CancelPaymentIntent(c.Context(), c.site.ID, intent.ID)
			if errors.Is(err, models.ErrIntentNotCancellable) {
				return nil
			}
			return fmt.Errorf("not expired: %w", err)
		},
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			c := newCheckout(t)
			intent := modelstest.Intent(t, c.store, c.site.ID, 100)
			modelstest.AdvanceClock(t, c.store, models.DefaultIntentLife-time.Millisecond)
			if n, err := c.store.ExpirePaymentIntents(t.Context(), 10); n != 0 || err != nil {
				t.Errorf("a millisecond too early: %d, %v", n, err)
			}
			c.want(intent, models.IntentCreated, "")
			modelstest.AdvanceClock(t, c.store, time.Millisecond)
			if err := look(c, intent); err != nil {
				t.Error(err)
			}
			c.want(intent, models.IntentFinal, models.TransactionExpired)
			if n, err := c.store.ExpirePaymentIntents(t.Context(), 10); n != 0 || err != nil {
				t.Errorf("expired twice: %d, %v", n, err)
			}
			modelstest.Audit(t, c.store)
		})
	}
}

func TestSweepGoesInSteps(t *testing.T) {
	c := newCheckout(t)
	for range 5 {
		modelstest.Intent(t, c.store, c.site.ID, 100)
	}
	modelstest.AdvanceClock(t, c.store, models.DefaultIntentLife)
	for _, want := range []int{2, 2, 1, 0} {
		if n, err := c.store.ExpirePaymentIntents(t.Context(), 2); n != want || err != nil {
			t.Errorf("%d expired, want %d, %v", n, want, err)
		}
	}
	modelstest.Audit(t, c.store)
}

// The notification of a settled intent is exact to the cent.
func TestPushOfASettledIntent(t *testing.T) {
	c := newCheckout(t)
	intent := modelstest.Intent(t, c.store, c.site.ID, 1000, 700, 300, 0)
	started := modelstest.Pay(t, c.store, intent, models.Party{CustomerID: "secret-c", AgreementID: "secret-a"},
		models.Discount{LineItem: 0, Amount: 100, Reason: "loyal <&>"}, models.Discount{LineItem: 1, Amount: 300,
			Reason: "free"},
		models.Discount{LineItem: 0, Amount: 1, Reason: "loyal <&>"})
	modelstest.AdvanceClock(t, c.store, time.Second)
	c.finish(c.claim(started.Task), models.TransactionResult{Status: models.TransactionSettled})
	want := fmt.Sprintf(`{"data":{"idempotencyKey":"EVENT","siteId":{"id":%q},"paymentIntentId":%q,"transactionId":%q,`+
		`"transactionStatus":"Settled","transactionUpdated":%d,"orderId":"order","lineItems":[`+
		`{"itemId":"item","quantity":1,"amountPerUnit":700,"amountSubtotal":700,"amountTotal":599,`+
		`"discounts":[{"amount":100,"reason":"loyal <&>"},{"amount":1,"reason":"loyal <&>"}]},`+
		`{"itemId":"item","quantity":1,"amountPerUnit":300,"amountSubtotal":300,"amountTotal":0,"discounts":[{"amount":300,"reason":"free"}]},`+
		`{"itemId":"item","quantity":1,"amountPerUnit":0,"amountSubtotal":0,"amountTotal":0}],"amountPaid":599},"traceId":%q}`,
		c.site.ID, intent.ID, started.ID, noon+1000, intent.TraceID)
	if diff := cmp.Diff(want, c.pushed(intent.ID)); diff != "" {
		t.Error(diff)
	}
	modelstest.Audit(t, c.store)
}

func TestPushOfUnpaidIntents(t *testing.T) {
	c := newCheckout(t)
	for status, description := range map[models.TransactionStatus]string{
		models.TransactionCancelled: "The payment intent was cancelled.",
		models.TransactionExpired:   "No customer began to pay before the payment intent expired.",
	} {
		intent := modelstest.Intent(t, c.store, c.site.ID, 1000, 700)
		if status == models.TransactionCancelled {
			if _, _, err := c.store.CancelPaymentIntent(t.Context(), c.site.ID, intent.ID); err != nil {
				t.Fatal(err)
			}
		} else {
			modelstest.AdvanceClock(t, c.store, models.DefaultIntentLife)
			c.get(intent)
		}
		want := fmt.Sprintf(
			`{"data":{"idempotencyKey":"EVENT","siteId":{"id":%q},"paymentIntentId":%q,"transactionStatus":%q,`+
				`"transactionStatusDescription":%q,"orderId":"order","lineItems":[{"itemId":"item","quantity":1,"amountPerUnit":700,`+
				`"amountSubtotal":700,"amountTotal":700}]},"traceId":%q}`, c.site.ID, intent.ID, status, description,
			intent.TraceID)
		if diff := cmp.Diff(want, c.pushed(intent.ID)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestPushOfDeclinedIntents(t *testing.T) {
	c := newCheckout(t)
	for _, reason := range []models.RowOutcome{
		models.OutcomeInsufficientFunds, models.OutcomeAccountUnavailable, models.OutcomeLimitExceeded,
		models.OutcomeDeclinedByCustomer, models.OutcomeDeclined,
	} {
		intent := modelstest.Intent(t, c.store, c.site.ID, 1000, 700)
		started := modelstest.Pay(t, c.store, intent, models.Party{CustomerID: "c", AgreementID: "a"},
			models.Discount{LineItem: 0, Amount: 7, Reason: "r"})
		c.finish(c.claim(started.Task), models.TransactionResult{Status: models.TransactionDeclined, Reason: reason})
		var body struct {
			Data struct {
				TransactionID, TransactionStatus, TransactionStatusDescription string
				TransactionUpdated                                             models.Millis
				AmountPaid                                                     *models.Amount
				LineItems                                                      []struct{ AmountTotal models.Amount }
			}
		}
		if err := json.Unmarshal([]byte(c.pushed(intent.ID)), &body); err != nil {
			t.Fatal(err)
		}
		d := body.Data
		if d.TransactionID != started.ID.String() || d.TransactionStatus != "Declined" ||
			d.TransactionStatusDescription == "" ||
			d.TransactionUpdated != noon || d.AmountPaid != nil || d.LineItems[0].AmountTotal != 693 {
			t.Errorf("%s: %+v", reason, d)
		}
	}
	modelstest.Audit(t, c.store)
}
