package models_test

import (
	"testing"

	"partnerbilling/models"
)

func TestRowTransitions(t *testing.T) {
	states := []models.RowState{models.RowPending, models.RowInProgress, models.RowSettled}
	allowed := map[[2]models.RowState]bool{
		{models.RowPending, models.RowInProgress}: true,
		{models.RowPending, models.RowSettled}:    true,
		{models.RowInProgress, models.RowPending}: true,
		{models.RowInProgress, models.RowSettled}: true,
	}
	for _, from := range states {
		for _, to := range append(states, "unheardOf", "") {
			if got := from.CanBecome(to); got != allowed[[2]models.RowState{from, to}] {
				t.Errorf("%s → %s allowed: %t", from, to, got)
			}
		}
	}
}

func TestOutcomesThatMaySucceedLater(t *testing.T) {
	retryable := map[models.RowOutcome]bool{
		models.OutcomeInsufficientFunds: true, models.OutcomeLimitExceeded: true,
		models.OutcomeAccountUnavailable: true, models.OutcomeTimedOut: true,
	}
	for _, o := range models.RowOutcomes {
		if o.Retryable() != retryable[o] {
			t.Errorf("%s retryable: %t", o, o.Retryable())
		}
	}
}
