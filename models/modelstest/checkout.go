package modelstest

import (
	"testing"

	"github.com/google/uuid"

	"partnerbilling/models"
)

// Intent creates a payment intent of the amount at a Site, with one line item for each subtotal.
// The helpers of this package fail the test on errors.
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

// Payer opens an account with the behaviour on the sandbox rail and returns its customer.
func Payer(t testing.TB, store *models.Store, behaviour models.Behaviour) models.Party {
	t.Helper()
	id := uuid.NewString()
	party := models.Party{CustomerID: "customer " + id, AgreementID: "agreement " + id}
	if err := store.OpenSandboxAccount(t.Context(), party.AgreementID, behaviour); err != nil {
		t.Fatalf("modelstest: account of a payer: %v", err)
	}
	return party
}

// Pay lets a customer begin to pay an intent, and fails the test if the customer had begun before.
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

// PushedStatuses returns the transaction statuses in the webhook events of a payment intent: at
// most one if the service is correct.
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
