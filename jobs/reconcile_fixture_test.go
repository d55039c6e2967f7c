package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/jobs/reconcile"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// books are a Site with batches and payments on the sandbox rail, and their reconciliation. The
// service's clock stands still.
type books struct {
	*testing.T
	store *models.Store
	site  models.Site
	rail  rail.Rail
	job   *ReconcileRail
}

// adapters are the rails of the tests. Both have their state in the database.
var adapters = map[string]func(t *testing.T, store *models.Store) rail.Rail{
	"sandbox": func(_ *testing.T, store *models.Store) rail.Rail { return rail.NewSandbox(store) },
	"http": func(t *testing.T, store *models.Store) rail.Rail {
		_, client := faultyGateway(t, store)
		return client
	},
}

// onEachRail runs a test on each adapter.
func onEachRail(t *testing.T, test func(b *books)) {
	for name, connect := range adapters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := modelstest.Open(t)
			test(newBooks(t, store, connect(t, store)))
		})
	}
}

// lookups is the maximum number of look-ups in flight of one comparison.
const lookups = 2

func newBooks(t *testing.T, store *models.Store, r rail.Rail) *books {
	modelstest.SetClock(t, store, noon)
	b := &books{T: t, store: store, site: modelstest.Site(t, store), rail: r}
	b.job = &ReconcileRail{
		Comparer: &reconcile.Comparer{Store: store, Rail: r, RailConcurrency: 8 * lookups},
		Now:      time.Now, Log: slog.New(slog.DiscardHandler),
	}
	return b
}

func (b *books) exec(query string, args ...any) {
	b.Helper()
	if _, err := b.store.DB().ExecContext(b.Context(), query, args...); err != nil {
		b.Fatal(err)
	}
}

// bill debits customers with these behaviours, in a batch.
func (b *books) bill(reference string, behaviours ...models.Behaviour) {
	b.Helper()
	var customers []string
	for i, behaviour := range behaviours {
		customers = append(customers, fmt.Sprintf("%s/%d", reference, i))
		modelstest.Customer(b, b.store, b.site.ID, customers[i], behaviour)
	}
	modelstest.Submit(b, b.store, modelstest.Batch(b.site, reference, customers...))
	b.work()
}

// pay lets a customer with a behaviour pay a payment intent.
func (b *books) pay(behaviour models.Behaviour) models.PaymentIntent {
	b.Helper()
	intent := modelstest.Intent(b, b.store, b.site.ID, price, price)
	modelstest.Pay(b, b.store, intent, modelstest.Payer(b, b.store, behaviour))
	b.work()
	return intent
}

// decideLost debits a row whose requests the scripted rail loses, and decides at its deadline that
// it was debited.
func (b *books) decideLost(scripted *railtest.Scripted) {
	b.Helper()
	scripted.SetDefault(railtest.LoseRequest)
	b.bill("batch", models.BehaviourPays)
	modelstest.AdvanceClock(b, b.store, models.SettleWithin)
	if _, err := b.store.CloseOverdueBatch(b.Context()); err != nil {
		b.Fatal(err)
	}
	act := &models.Act{
		Name: models.ActDecideRow, Actor: models.Actor{Kind: models.ActorOperator, Name: "test", Origin: "test"},
	}
	_, err := b.store.DecideRow(models.WithAct(b.Context(), act), b.site.ID, "batch", "row-0", models.DecidedDebited)
	if err != nil {
		b.Fatal(err)
	}
}

// work runs every debit and payment that is due.
func (b *books) work() {
	b.Helper()
	var tasks []models.Task
	err := b.store.DB().NewRaw(`SELECT id, kind, organisation_id FROM outbox
WHERE kind IN ('debitRows', 'settleTransaction') AND available_at <= svc_now()`).Scan(b.Context(), &tasks)
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	debit := &DebitRows{Store: b.store, Rail: b.rail, Permits: NewPermits(64), Now: time.Now, Log: log}
	settle := &SettleTransaction{
		Store: b.store, Rail: b.rail, Permits: NewPermits(64), Now: time.Now, Log: log,
		Notify: func([]models.TaskID) {},
	}
	for _, task := range tasks {
		if task.Kind == models.TaskDebitRows {
			err = debit.Run(b.Context(), task)
		} else {
			err = settle.Run(b.Context(), task)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// period is the time after which every event has been compared: one period of the task, and the
// delays of the recording, the ledger and the list.
const period = time.Minute + reconcile.RecordingDelay + reconcile.Skew + models.SandboxListDelay + time.Second

// reconcile lets a period pass, with one run of the task at its end.
func (b *books) reconcile() {
	b.Helper()
	modelstest.AdvanceClock(b, b.store, period)
	b.run()
}

// run runs the task once.
func (b *books) run() {
	b.Helper()
	if err := b.job.Run(b.Context(), models.Task{ID: models.TaskID(uuid.New())}); err != nil {
		b.Fatal(err)
	}
}

// wantFindings checks the kinds of the open alerts about the reconciliation, by subject.
func (b *books) wantFindings(want map[string]models.DifferenceKind) {
	b.Helper()
	alerts, err := b.store.OpenAlerts(b.Context(), 100)
	if err != nil {
		b.Fatal(err)
	}
	got := map[string]models.DifferenceKind{}
	for _, a := range alerts {
		if kind := models.DifferenceKind(a.Kind); kind.IsFinding() || a.Kind == models.AlertReconciliationGap {
			got[a.Subject] = kind
		}
	}
	if !maps.Equal(got, want) {
		b.Errorf("findings %v, want %v", got, want)
	}
}

// inFlight returns the number of differences in flight.
func (b *books) inFlight() int {
	b.Helper()
	state, err := b.store.Reconciliation(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return state.InFlight
}

// ledgerKeys returns the rail keys of the ledger.
func (b *books) ledgerKeys() (keys []string) {
	b.Helper()
	err := b.store.DB().NewRaw("SELECT rail_key FROM ledger_entries ORDER BY rail_key").Scan(b.Context(), &keys)
	if err != nil {
		b.Fatal(err)
	}
	return keys
}

// plant debits on the rail, outside the service.
func (b *books) plant(key string, amount models.Amount) {
	b.Helper()
	if err := b.store.OpenSandboxAccount(b.Context(), "planted", models.BehaviourPays); err != nil {
		b.Fatal(err)
	}
	d := rail.Debit{Key: key, AgreementID: "planted", Amount: amount, Currency: "AUD"}
	if r := railtest.Debit(b.Context(), b, b.rail, d)[0]; r.Status != rail.Succeeded {
		b.Fatalf("planted: %+v", r)
	}
}

const nobodysKey = "r1_0000000000000000000000000000000000000000000000000000000000000000"

// enter records an entry, as a service would that this one does not know.
func (b *books) enter(key string, amount models.Amount) {
	b.Helper()
	b.exec(`
INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference, row_reference,
    customer_reference)
VALUES (?, ?, svc_now(), ?, 'AUD', 'b', 'r', 'c')`, key, b.site.ID, amount)
}

func (b *books) alert(subject string) models.Alert {
	b.Helper()
	alerts, err := b.store.OpenAlerts(b.Context(), 100)
	if err != nil {
		b.Fatal(err)
	}
	i := slices.IndexFunc(alerts, func(a models.Alert) bool { return a.Subject == subject })
	if i < 0 {
		b.Fatalf("no alert about %s", subject)
	}
	return alerts[i]
}

func (b *books) now() models.Millis {
	state, err := b.store.Reconciliation(context.WithoutCancel(b.Context()))
	if err != nil {
		b.Error(err)
	}
	return state.Now
}
