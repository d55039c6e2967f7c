package models_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func TestIntentTransitions(t *testing.T) {
	allowed := map[[2]models.IntentState]bool{
		{models.IntentCreated, models.IntentPending}: true,
		{models.IntentCreated, models.IntentFinal}:   true,
		{models.IntentPending, models.IntentFinal}:   true,
	}
	for _, from := range append(models.IntentStates, "unheardOf", "") {
		for _, to := range append(models.IntentStates, "unheardOf", "") {
			if got := from.CanBecome(to); got != allowed[[2]models.IntentState{from, to}] {
				t.Errorf("%s → %s allowed: %t", from, to, got)
			}
		}
	}
}

// endings is the expected truth table of final statuses.
var endings = map[models.IntentState]map[models.TransactionStatus]bool{
	models.IntentCreated: {models.TransactionCancelled: true, models.TransactionExpired: true},
	models.IntentPending: {models.TransactionSettled: true, models.TransactionDeclined: true,
		models.TransactionFailed: true},
}

func TestIntentEndings(t *testing.T) {
	for _, from := range append(models.IntentStates, "unheardOf", "") {
		for _, status := range append(models.TransactionStatuses, "settled", "") {
			if got := from.CanEndAs(status); got != endings[from][status] {
				t.Errorf("%s ends as %s: %t", from, status, got)
			}
			if got := status.HasTransaction(); got != endings[models.IntentPending][status] {
				t.Errorf("%s has a transaction: %t", status, got)
			}
		}
	}
}

// Postgres accepts exactly the combinations of state, status and transaction that the tables allow.
func TestPostgresHoldsTheTruthTable(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	for _, state := range models.IntentStates {
		for _, status := range append(models.TransactionStatuses, "") {
			for _, hasTransaction := range []bool{false, true} {
				valid := (state == models.IntentFinal) == (status != "") &&
					hasTransaction == (state == models.IntentPending || status.HasTransaction())
				err := writeIntent(t, store, site, state, status, hasTransaction)
				if (err == nil) != valid {
					t.Errorf("%s %q with a transaction %t: %v", state, status, hasTransaction, err)
				}
			}
		}
	}
}

func writeIntent(
	t *testing.T, store *models.Store, site models.Site, state models.IntentState, status models.TransactionStatus,
	hasTransaction bool,
) error {
	transaction := "NULL, NULL, NULL, NULL"
	if hasTransaction {
		transaction = fmt.Sprintf("'%s', 'sealed', 0, 1", uuid.NewString())
	}
	final := "NULL"
	if state == models.IntentFinal {
		final = "1"
	}
	_, err := store.DB().ExecContext(t.Context(), fmt.Sprintf(`
INSERT INTO payment_intents (site_id, id, organisation_id, epoch, code, state, transaction_status, amount, currency,
	qr_code_format,
    created_at, expires_at, final_at, transaction_id, party, amount_charged, started_at)
VALUES (?, ?, ?, 1, ?, ?, nullif(?, '')::transaction_status, 100, 'AUD', 'text', 1, 2, %s, %s)`, final, transaction),
		site.ID, uuid.NewString(), site.OrganisationID, models.NewIntentCode(), string(state), string(status))
	return err
}
