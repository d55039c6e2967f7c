package modelstest

import (
	"testing"

	"github.com/google/uuid"

	"partnerbilling/models"
)

// Intent creates a payment intent with one line item for each subtotal.
func Intent(
	t testing.TB, store *models.Store, site models.SiteID, amount models.Amount, subtotals ...models.Amount,
) models.PaymentIntent {
	t.Helper()
	in := models.NewPaymentIntent{SiteID: site, Amount: amount, OrderID: "order", QRCodeFormat: models.QRCodeText}
	for _, s := range subtotals {
		in.LineItems = append(in.LineItems, models.LineItem{ItemID: "item", Quantity: 1, AmountPerUnit: s,
			AmountSubtotal: s})
	}
	intent, _, err := store.CreatePaymentIntent(models.WithTraceID(t.Context(), models.NewTraceID()), in, nil)
	if err != nil {
		t.Fatalf("modelstest: payment intent: %v", err)
	}
	return intent
}

// Payer returns a customer with an account on the sandbox rail that has the behaviour.
func Payer(t testing.TB, store *models.Store, behaviour models.Behaviour) models.Party {
	t.Helper()
	id := uuid.NewString()
	party := models.Party{CustomerID: "customer " + id, AgreementID: "agreement " + id}
	if err := store.OpenSandboxAccount(t.Context(), party.AgreementID, behaviour); err != nil {
		t.Fatalf("modelstest: account of a payer: %v", err)
	}
	return party
}

// Pay lets a customer begin to pay a created intent.
func Pay(
	t testing.TB, store *models.Store, intent models.PaymentIntent, party models.Party, discounts ...models.Discount,
) models.StartedTransaction {
	t.Helper()
	started, err := store.StartTransaction(t.Context(), intent.Code, party, discounts)
	if err != nil || started.Replayed {
		t.Fatalf("modelstest: pay %s: %+v, %v", intent.ID, started, err)
	}
	return started
}

// PushedStatuses returns the statuses in the webhook events of a payment intent: at most one, if
// the service is correct.
func PushedStatuses(t testing.TB, store *models.Store, intent models.PaymentIntentID) []models.TransactionStatus {
	t.Helper()
	var statuses []models.TransactionStatus
	if err := store.DB().NewRaw(
		"SELECT transaction_status FROM webhook_events WHERE payment_intent_id = ?", intent).
		Scan(t.Context(), &statuses); err != nil {
		t.Fatalf("modelstest: events of %s: %v", intent, err)
	}
	return statuses
}
