package api_test

import (
	"strings"
	"testing"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/models"
)

// paying is a billing whose test plays the workers that execute payments.
type paying struct {
	*billing
	tasks   chan []models.TaskID // the tasks of each started payment
	arrived *arrivals            // signals each request
}

func newPaying(t testing.TB) *paying {
	t.Helper()
	c := &paying{tasks: make(chan []models.TaskID, 100), arrived: newArrivals()}
	c.billing = newBilling(t, func(cfg *api.Config) {
		cfg.Notify = func(tasks []models.TaskID) { c.tasks <- tasks }
		cfg.Limiter = c.arrived
	})
	return c
}

// intents returns a path below the Site's payment intents.
func (b *billing) intents(path string) string {
	return "/checkout/" + b.site.String() + "/payment-intent" + path
}

// createdIntent is the data of a new payment intent.
type createdIntent struct{ QRCode, PaymentIntentID, OrderID string }

// intentData is the data of a payment intent.
type intentData struct {
	PaymentIntentID, Currency, OrderID, State, TransactionStatus, TransactionID string
	PaymentURL, ReturnURL                                                       string
	LineItems                                                                   []models.LineItem
	Amount                                                                      models.Amount
	AmountPaid                                                                  *models.Amount
	CreatedAt, ExpiresAt                                                        models.Millis
}

// intent creates a payment intent of 1000 with two lines and returns its id and its code.
func (b *billing) intent(t testing.TB) (id, code string) {
	t.Helper()
	made := dataOf[createdIntent](b.Post(b.intents(""), `{"amount":1000,"orderId":"order 7",
		"qrCodeFormat":"text","lineItems":[
		{"itemId":"coffee","quantity":2,"amountPerUnit":300,"amountSubtotal":700,"addOns":{"customizations":"oat milk","modifiers":["m1"]}},
		{"itemId":"cake","quantity":1,"amountPerUnit":300,"amountSubtotal":300}]}`).Expect(201))
	code, ok := strings.CutPrefix(made.QRCode, "HTTPS://BILLING.EXAMPLE/P/")
	if !ok {
		t.Fatalf("QR code %q", made.QRCode)
	}
	return made.PaymentIntentID, code
}

// transactions returns the path at which the customer app starts a payment.
func transactions(code string) string {
	return "/customer-app/payment-intents/" + code + "/transactions"
}

// party is the body of a payment.
const party = `{"customerId":"secret-customer","agreementId":"secret-agreement"}`

// pay starts a payment as the customer app and claims its transaction.
func (c *paying) pay(t testing.TB, code string) models.ClaimedTransaction {
	t.Helper()
	c.app.Post(transactions(code), party).Expect(202)
	return c.claim(t)
}

// claim claims the next transaction in the order of their announcement, as a worker would.
func (c *paying) claim(t testing.TB) models.ClaimedTransaction {
	t.Helper()
	claimed, err := c.store.ClaimTransaction(t.Context(), (<-c.tasks)[0], models.NewLeaseToken())
	if err != nil || !claimed.Claimed {
		t.Fatalf("claimed %+v, %v", claimed, err)
	}
	return claimed
}

// finish records the result of a transaction, as a worker would.
func (c *paying) finish(t testing.TB, claimed models.ClaimedTransaction, r models.TransactionResult) {
	t.Helper()
	if done, err := c.store.FinishTransaction(t.Context(), claimed, r); err != nil || !done.Ended {
		t.Fatalf("finished %+v, %v", done, err)
	}
}

func (b *billing) getIntent(id string) intentData {
	return dataOf[intentData](b.Get(b.intents("/" + id)).Expect(200))
}

// complains fails the test unless the answer has exactly these messages.
func complains(t testing.TB, a *apitest.Answer, status int, messages ...string) {
	t.Helper()
	a.Expect(status)
	var got []string
	for _, f := range a.Faults() {
		got = append(got, f.Message)
	}
	if strings.Join(got, "\n") != strings.Join(messages, "\n") {
		t.Errorf("messages %q, want %q", got, messages)
	}
}
