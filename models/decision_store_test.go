package models_test

import (
	"errors"
	"testing"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// leasesAreTakenOver gives each payment that is leased from now on to another worker at once.
func (c *checkout) leasesAreTakenOver() {
	c.Helper()
	for _, statement := range []string{
		`CREATE FUNCTION take_over() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN NEW.lease_token := gen_random_uuid(); RETURN NEW; END $$`,
		`CREATE TRIGGER take_over BEFORE UPDATE ON payment_intents FOR EACH ROW
			WHEN (NEW.lease_token IS NOT NULL) EXECUTE FUNCTION take_over()`,
	} {
		_, err := c.store.DB().ExecContext(c.Context(), statement)
		must(c, err)
	}
}

// A decision that loses its lease is refused, unless it says that the customer was debited: that
// counts without a lease.
func TestDecisionThatLosesItsLease(t *testing.T) {
	c := newCheckout(t)
	c.leasesAreTakenOver()
	for decision, want := range map[models.DebitDecision]struct {
		state  models.IntentState
		status models.TransactionStatus
		err    error
		code   string // in the audit log
	}{
		models.DecidedNotDebited: {models.IntentPending, "", models.ErrNoDecisionNeeded, "noDecisionNeeded"},
		models.DecidedDebited:    {models.IntentFinal, models.TransactionSettled, nil, ""},
	} {
		intent := modelstest.Intent(t, c.store, c.site.ID, 1000)
		modelstest.Pay(t, c.store, intent, modelstest.Payer(t, c.store, models.BehaviourPays))
		ctx := actBy(t.Context(), "jane", models.ActDecidePayment)
		status, _, err := c.store.DecidePayment(ctx, intent.ID, decision)
		if status != want.status || !errors.Is(err, want.err) {
			t.Errorf("%s: %q, %v; want %q, %v", decision, status, err, want.status, want.err)
		}
		must(t, c.store.EndAct(ctx, err))
		c.want(intent, want.state, want.status)
		entries := auditLog(t, c.store, models.AuditFilter{Subject: intent.ID.String()})
		if len(entries) != 1 || entries[0].Code != want.code {
			t.Errorf("%s: audit log %+v, want one entry with code %q", decision, entries, want.code)
		}
	}
}

// A row of a batch that was cancelled after a restore ends as cancelled, like its other rows.
func TestDecisionAfterACancelledRestore(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]models.RowOutcome{
		"cancel": models.OutcomeCancelled, "resume": models.OutcomeTimedOut,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := modelstest.Open(t)
			site := modelstest.Site(t, store)
			modelstest.Submit(t, store, modelstest.Batch(site, "batch", "ada"))
			_, err := store.BeginEpoch(t.Context())
			must(t, err)
			if name == "cancel" {
				_, err = store.CancelRestored(t.Context())
			} else {
				_, err = store.ResumeRestored(t.Context())
			}
			must(t, err)
			modelstest.AdvanceClock(t, store, models.SettleWithin)
			_, err = store.CloseOverdueBatch(t.Context())
			must(t, err)
			outcome, err := store.DecideRow(t.Context(), site.ID, "batch", "row-0", models.DecidedNotDebited)
			if outcome != want || err != nil {
				t.Errorf("decided: %s, %v; want %s", outcome, err, want)
			}
		})
	}
}
