package models_test

import (
	"testing"

	"partnerbilling/models"
)

// The body matches the specification byte for byte, without needless escapes.
func TestWebhookBody(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	push := w.push()
	free := models.Amount(0)
	push.TransactionID = models.TransactionID(push.PaymentIntentID)
	push.TransactionUpdated, push.OrderID, push.AmountPaid = webhookStart, "a<b>&\u2028🧾", &free
	push.TransactionStatusDescription = "\"quoted\"\tand \u2029"
	push.LineItems = []models.PushLineItem{
		{ItemID: "1", Quantity: 1, AmountPerUnit: models.MaxAmount, AmountSubtotal: models.MaxAmount, AmountTotal: 0},
		{
			ItemID: "2", Quantity: 2, AddOns: &models.PushAddOns{Customizations: "no <ice>", Modifiers: []string{"m1"}},
			AmountTotal: 3, Discounts: []models.PushDiscount{{Amount: 1, Reason: "R&D"}},
		},
	}
	trace := models.NewTraceID()
	id, _, err := w.InsertWebhookEvent(t.Context(), w.site.OrganisationID, trace, push)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"data":{"idempotencyKey":"` + id.String() + `","siteId":{"id":"` + w.site.ID.String() +
		`"},"paymentIntentId":"` +
		push.PaymentIntentID.String() + `","transactionId":"` + push.TransactionID.String() +
		`","transactionStatus":"Settled",` +
		`"transactionStatusDescription":"\"quoted\"\tand ` + "\u2029" +
		`","transactionUpdated":1800000000000,"orderId":"a<b>&` + "\u2028" + `🧾",` +
		`"lineItems":[{"itemId":"1","quantity":1,"amountPerUnit":9007199254740991,"amountSubtotal":9007199254740991,"amountTotal":0},` +
		`{"itemId":"2","quantity":2,"amountPerUnit":0,"amountSubtotal":0,"addOns":{"customizations":"no <ice>","modifiers":["m1"]},` +
		`"amountTotal":3,"discounts":[{"amount":1,"reason":"R&D"}]}],"amountPaid":0},"traceId":"` + string(trace) + `"}`
	if event, _ := w.event(id); string(event.Body) != want {
		t.Errorf("body\n%s\nwant\n%s", event.Body, want)
	}
	bare := w.push()
	bare.TransactionStatus, bare.AmountPaid = "Expired", nil
	id, _, err = w.InsertWebhookEvent(t.Context(), w.site.OrganisationID, trace, bare)
	if err != nil {
		t.Fatal(err)
	}
	want = `{"data":{"idempotencyKey":"` + id.String() + `","siteId":{"id":"` + w.site.ID.String() +
		`"},"paymentIntentId":"` +
		bare.PaymentIntentID.String() + `","transactionStatus":"Expired"},"traceId":"` + string(trace) + `"}`
	if event, _ := w.event(id); string(event.Body) != want {
		t.Errorf("body\n%s\nwant\n%s", event.Body, want)
	}
}
