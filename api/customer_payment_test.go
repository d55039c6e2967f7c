package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"partnerbilling/api"
	"partnerbilling/models"
)

func TestCustomerPaymentAnswers(t *testing.T) {
	c := newPaying(t)
	id, code := c.intent(t)
	path := "/customer-app/payment-intents/" + code
	golden(t, "payable-intent", c.app.Get(path).Expect(200))
	first := c.app.Post(path+"/transactions", party).Expect(202)
	golden(t, "transaction", first)
	claimed := c.claim(t)
	again := c.app.Post(path+"/transactions", party).Expect(202)
	if dataOf[started](first) != dataOf[started](again) {
		t.Errorf("another answer: %s", again.Body)
	}
	if again = c.app.Post(path+"/transactions", `{"customerId":"secret-customer","agreementId":"another"}`).
		Expect(202); dataOf[started](first) != dataOf[started](again) {
		t.Errorf("another answer to the same customer: %s", again.Body)
	}
	golden(t, "payable-intent-pending", c.app.Get(path).Expect(200))
	golden(t, "transaction-taken", c.app.Post(path+"/transactions", `{"customerId":"bob","agreementId":"b"}`).
		Expect(409))
	c.finish(t, claimed, models.TransactionResult{Status: models.TransactionSettled})
	golden(t, "payable-intent-settled", c.app.Get(path).Expect(200))
	c.app.Post(path+"/transactions", party).Expect(202)
	if got := c.getIntent(id); *got.AmountPaid != 1000 || got.TransactionID != dataOf[started](first).TransactionID {
		t.Errorf("%+v", got)
	}

	id, code = c.intent(t)
	c.Post(c.intents("/"+id+"/cancellation"), nil).Expect(200)
	golden(t, "transaction-cancelled", c.app.Post(transactions(code), party).Expect(410))
	_, code = c.intent(t)
	c.advance(t, 15*time.Minute)
	golden(t, "transaction-expired", c.app.Post(transactions(code), party).Expect(410))
	golden(t, "transaction-not-found", c.app.Post(transactions("ABCDEFGHIJKLMNOP"), party).Expect(404))
	for _, code := range []string{"x", strings.ToLower(code), code + "A", "%ff"} {
		c.app.Get("/customer-app/payment-intents/"+code).Refused(404, "requests:payment-intent-not-found code")
	}
}

type started struct{ TransactionID string }

func TestCustomerPaymentFaults(t *testing.T) {
	c := newPaying(t)
	id, code := c.intent(t)
	pay := func(discounts string) string { return party[:len(party)-1] + `,"discounts":` + discounts + `}` }
	for body, faults := range map[string][]string{
		`{}`: {"requests:missing-field customerId",
			"requests:missing-field agreementId"},
		`{"customerId":"","agreementId":7}`: {"requests:invalid-field customerId",
			"requests:invalid-field agreementId"},
		pay(`{}`): {"requests:invalid-field discounts"},
		pay(`[{}]`): {"requests:missing-field discounts[0].lineItemIndex",
			"requests:missing-field discounts[0].amount", "requests:missing-field discounts[0].reason"},
		pay(`[{"lineItemIndex":-1,"amount":0,"reason":""}]`): {"requests:invalid-field discounts[0].lineItemIndex",
			"requests:invalid-field discounts[0].amount", "requests:invalid-field discounts[0].reason"},
		pay(`[{"lineItemIndex":2,"amount":1,"reason":"r"}]`): {
			"requests:invalid-field discounts[0].lineItemIndex"},
		pay(`[{"lineItemIndex":0,"amount":701,"reason":"r"}]`): {"requests:invalid-field discounts[0].amount"},
		pay(`[{"lineItemIndex":0,"amount":1.5,"reason":"a\nb"}]`): {"requests:invalid-field discounts[0].amount",
			"requests:invalid-field discounts[0].reason"},
		pay(`[{"lineItemIndex":0,"amount":400,"reason":"r"},{"lineItemIndex":1,"amount":9,"reason":"."},
			{"lineItemIndex":0,"amount":301,"reason":"r"}]`): {"requests:invalid-field discounts[2].amount"},
	} {
		c.app.Post(transactions(code), body).Refused(400, faults...)
	}
	if got := c.getIntent(id); got.State != "created" {
		t.Errorf("a payment that was refused began: %+v", got)
	}
	c.app.Post(transactions(code),
		pay(`[{"lineItemIndex":0,"amount":700,"reason":"."},{"lineItemIndex":1,"amount":299,"reason":"…"}]`)).
		Expect(202)
	c.finish(t, c.claim(t), models.TransactionResult{Status: models.TransactionSettled})
	if got := c.getIntent(id); *got.AmountPaid != 1 {
		t.Errorf("paid %d", *got.AmountPaid)
	}
}

func TestPaymentsAreForTheCustomerApp(t *testing.T) {
	c := newPaying(t)
	_, code := c.intent(t)
	c.Get("/customer-app/payment-intents/"+code).Refused(403, "auth:insufficient-scope")
	c.Post(transactions(code), party).Refused(403, "auth:insufficient-scope")
}

// Data that the customer app sends never reaches a partner or a page.
func TestPartnersNeverSeeThePayer(t *testing.T) {
	c := newPaying(t)
	id, code := c.intent(t)
	c.finish(t, c.pay(t, code), models.TransactionResult{Status: models.TransactionSettled})
	for _, path := range []string{c.intents("/" + id), "/P/" + code} {
		if a := c.Get(path).Expect(200); strings.Contains(string(a.Body), "secret") {
			t.Errorf("%s: %s", path, a.Body)
		}
	}
}

func (b *billing) sandboxPayment(id string) string {
	return "/sandbox/payment-intents/" + id + "/payment"
}

func TestSandboxPayment(t *testing.T) {
	c := newPaying(t)
	for _, behaviour := range models.Behaviours {
		id, _ := c.intent(t)
		a := c.Post(c.sandboxPayment(id), fmt.Sprintf(`{"behaviour":%q}`, behaviour)).Expect(202)
		claimed := c.claim(t)
		if claimed.ID.String() != dataOf[started](a).TransactionID {
			t.Errorf("claimed %s, told of %s", claimed.ID, a.Body)
		}
		var got string
		if err := c.store.DB().NewRaw("SELECT behaviour FROM sandbox_accounts WHERE agreement_id = ?",
			claimed.Account.AgreementID).
			Scan(t.Context(), &got); err != nil || got != string(behaviour) {
			t.Errorf("the account %s, want %s, %v", got, behaviour, err)
		}
	}
	id, _ := c.intent(t)
	c.Post(c.sandboxPayment(id), nil).Expect(202)
	c.finish(t, c.claim(t), models.TransactionResult{Status: models.TransactionFailed})
	complains(t, c.Post(c.sandboxPayment(id), nil).Refused(409, "requests:payment-intent-taken"), 409,
		"The payment intent has ended.")
	for _, body := range []any{nil, "{}", `{"behaviour":null,"discounts":null}`,
		`{"discounts":[{"lineItemIndex":1,"amount":300,"reason":"r"}]}`} {
		id, _ := c.intent(t)
		c.Post(c.sandboxPayment(id), body).Expect(202)
		c.Post(c.sandboxPayment(id), body).Refused(409, "requests:payment-intent-taken")
	}
	id, _ = c.intent(t)
	c.Post(c.sandboxPayment(id), `{"behaviour":"Pays","discounts":[{}]}`).
		Refused(400, "requests:invalid-field behaviour",
			"requests:missing-field discounts[0].lineItemIndex", "requests:missing-field discounts[0].amount",
			"requests:missing-field discounts[0].reason")
	c.Post(c.sandboxPayment(id), `{"discounts":[{"lineItemIndex":0,"amount":701,"reason":"r"}]}`).
		Refused(400, "requests:invalid-field discounts[0].amount")
	c.other.Post(c.sandboxPayment(id), nil).Refused(404, "requests:payment-intent-not-found paymentIntentId")
	c.Post(c.sandboxPayment("pi_01932c07-0000-7000-8000-000000000009"), nil).
		Refused(404, "requests:payment-intent-not-found paymentIntentId")
	c.Post(c.intents("/"+id+"/cancellation"), nil).Expect(200)
	c.Post(c.sandboxPayment(id), nil).Refused(410, "requests:payment-intent-cancelled")
	id, _ = c.intent(t)
	c.advance(t, 15*time.Minute)
	c.Post(c.sandboxPayment(id), nil).Refused(410, "requests:payment-intent-expired")
	made := dataOf[createdIntent](c.Post("/checkout/"+c.sister.String()+"/payment-intent", `{"amount":1}`).Expect(201))
	c.Post(c.sandboxPayment(made.PaymentIntentID), nil).Expect(202) // any Site of the organisation
}

func TestSandboxPaymentIsAbsentInProduction(t *testing.T) {
	b := newBilling(t, func(cfg *api.Config) { cfg.Sandbox = nil })
	id, code := b.intent(t)
	b.Post(b.sandboxPayment(id), nil).Refused(404, "requests:not-found")
	b.app.Post(transactions(code), party).Expect(202)
	var accounts int
	if err := b.store.DB().NewRaw("SELECT count(*) FROM sandbox_accounts").Scan(t.Context(), &accounts); err != nil ||
		accounts != 0 {
		t.Errorf("%d sandbox accounts in production, %v", accounts, err)
	}
}
