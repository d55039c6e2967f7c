package jobs

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/seal"
)

// A worker without the master key of one customer debits the other rows, and raises an alert. The
// row is debited once the worker has the key.
func TestPartyThatCannotBeOpened(t *testing.T) {
	b := newBilling(t)
	old := modelstest.Keyring(t, modelstest.MasterKey)
	both := modelstest.Keyring(t, seal.GenerateMasterKey()+","+modelstest.MasterKey)
	b.store.SetKeyring(both)
	modelstest.Customer(t, b.store, b.site.ID, "ada", models.BehaviourPays)
	b.store.SetKeyring(old)
	modelstest.Customer(t, b.store, b.site.ID, "bob", models.BehaviourPays)
	done := modelstest.Submit(t, b.store, modelstest.Batch(b.site, "batch", "ada", "bob"))
	b.batch, b.tasks = done.Batch, done.Tasks
	b.run()
	b.want("pending", "succeeded")
	b.wantMoved(1)
	b.wantAlert(models.AlertPartyUnreadable, uuid.UUID(b.batch.ID).String())
	b.store.SetKeyring(both)
	b.advance(time.Minute)
	b.run()
	b.want("succeeded", "succeeded")
	b.wantMoved(0, 1)
}

// Without the key until the deadline, the row ends without a debit.
func TestPartyThatIsNeverOpened(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	b.store.SetKeyring(modelstest.Keyring(t, seal.GenerateMasterKey()))
	b.run()
	b.want("pending")
	b.advance(models.SettleWithin - models.LastAttemptBefore)
	b.run()
	b.want("timedOut")
	b.wantMoved()
}

// A payment whose customer the worker cannot read waits, and fails only if the rail confirms that
// nothing was debited.
func TestPayerThatCannotBeOpened(t *testing.T) {
	b := newTill(t)
	b.pay()
	b.store.SetKeyring(modelstest.Keyring(t, seal.GenerateMasterKey()))
	b.run()
	b.want("pending")
	b.wantCalls(railtest.Calls{})
	alerts, err := b.store.OpenAlerts(t.Context(), 10)
	if err != nil || len(alerts) != 1 || alerts[0].Kind != models.AlertPartyUnreadable || alerts[0].Subject != b.key() {
		t.Errorf("alerts %+v, %v", alerts, err)
	}
	b.advance(models.AnswerWithin)
	b.run()
	b.want("Failed")
	b.wantCalls(railtest.Calls{Cancels: 1})
}
