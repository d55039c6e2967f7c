package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"testing"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// TestReconcileOrdinaryDays plays ordinary and bad days in random order: batches and payments with
// every outcome, lost requests and answers, cancellations, workers that die, deadlines that pass
// while the rail is down. None of it is a difference between ledger and rail, at any moment. In
// the end nothing is in flight, and every debit has been compared.
func TestReconcileOrdinaryDays(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			store := modelstest.Open(t)
			server, client := faultyGateway(t, store)
			d := &days{
				books: newBooks(t, store, client), random: rand.New(rand.NewPCG(seed, 0)), gateway: server,
			}
			d.play(120)
		})
	}
}

// faultyGateway returns a gateway in front of the sandbox rail, and the adapter to it.
func faultyGateway(t *testing.T, store *models.Store) (*rail.Server, *rail.HTTP) {
	t.Helper()
	key := rail.SigningKey{ID: "test", Secret: []byte("a secret of the tests")}
	server, err := rail.NewServer(rail.ServerConfig{
		Rail: rail.NewSandbox(store), Keys: []rail.SigningKey{key}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	client, err := rail.NewHTTP(rail.HTTPConfig{
		BaseURL: listener.URL, AllowPlainHTTP: true, Key: key, Timeout: 5 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return server, client
}

// days are the books of a Site whose rail often fails.
type days struct {
	*books
	random  *rand.Rand
	gateway *rail.Server
	batches int
}

func (d *days) play(steps int) {
	d.Helper()
	for range steps {
		switch d.random.IntN(12) {
		case 0, 1:
			d.billSome()
		case 2, 3:
			d.pay(d.behaviour())
		case 4:
			d.cancelSome()
		case 5:
			d.setFaults()
		case 6:
			d.expireLeases()
		case 7:
			d.sweep()
		case 8:
			steps := []time.Duration{time.Second, time.Minute, time.Hour, 8 * time.Hour, 23*time.Hour + 30*time.Minute}
			modelstest.AdvanceClock(d, d.store, steps[d.random.IntN(len(steps))])
		case 9, 10:
			d.work()
		default:
			d.reconcile()
			d.wantFindings(map[string]models.DifferenceKind{})
		}
	}
	d.end()
}

func (d *days) behaviour() models.Behaviour {
	return []models.Behaviour{
		models.BehaviourPays, models.BehaviourPays, models.BehaviourAnswerLost, models.BehaviourAnswerLost,
		models.BehaviourInsufficientFunds, models.BehaviourDeclines, models.BehaviourBankDown,
	}[d.random.IntN(7)]
}

func (d *days) billSome() {
	d.Helper()
	var behaviours []models.Behaviour
	for range 1 + d.random.IntN(4) {
		behaviours = append(behaviours, d.behaviour())
	}
	d.bill(fmt.Sprint("batch ", d.batches), behaviours...)
	d.batches++
}

func (d *days) cancelSome() {
	d.Helper()
	if d.batches > 0 {
		_, _, err := d.store.CancelBatch(d.Context(), d.site.ID, fmt.Sprint("batch ", d.random.IntN(d.batches)))
		if err != nil {
			d.Fatal(err)
		}
	}
	intent := modelstest.Intent(d, d.store, d.site.ID, price, price)
	if _, _, err := d.store.CancelPaymentIntent(d.Context(), d.site.ID, intent.ID); err != nil {
		d.Fatal(err)
	}
}

// setFaults makes a part of the debits, look-ups and cancellations fail. The list is not affected:
// its failures only delay the comparison.
func (d *days) setFaults() {
	d.Helper()
	some := func() rail.Fault { return rail.Fault{Probability: []float64{0, 0.3, 1}[d.random.IntN(3)]} }
	err := d.gateway.SetFaults(rail.Faults{
		Seed: d.random.Uint64(), Only: []string{"debit", "lookup", "cancel"}, LoseRequest: some(), LoseAnswer: some(),
		Unavailable: some(), Garbage: some(),
	})
	if err != nil {
		d.Fatal(err)
	}
}

// expireLeases ends all leases, as if the workers had died.
func (d *days) expireLeases() {
	d.Helper()
	for _, table := range []string{"batch_rows", "payment_intents"} {
		d.exec("UPDATE " + table + " SET lease_until = statement_timestamp() WHERE lease_until IS NOT NULL")
	}
}

func (d *days) sweep() {
	d.Helper()
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := d.store.CloseUnsentRows(ctx); return err },
		func(ctx context.Context) error { _, err := d.store.CloseOverdueBatch(ctx); return err },
		func(ctx context.Context) error { _, err := d.store.ExpirePaymentIntents(ctx, 100); return err },
	} {
		var err error
		for range 100 {
			if err = step(d.Context()); err != nil {
				break
			}
		}
		if err != nil && !errors.Is(err, models.ErrNotFound) {
			d.Fatal(err)
		}
	}
}

// end lets the rail answer until every row and payment has ended, and checks the books.
func (d *days) end() {
	d.Helper()
	if err := d.gateway.SetFaults(rail.Faults{}); err != nil {
		d.Fatal(err)
	}
	open := -1
	for tries := 0; open != 0 && tries < 40; tries++ {
		d.expireLeases()
		modelstest.AdvanceClock(d, d.store, 10*time.Minute)
		d.work()
		d.sweep()
		err := d.store.DB().NewRaw("SELECT count(*) FROM outbox WHERE kind IN ('debitRows', 'settleTransaction')").
			Scan(d.Context(), &open)
		if err != nil {
			d.Fatal(err)
		}
	}
	modelstest.AdvanceClock(d, d.store, time.Hour) // differences in flight are checked again within an hour
	for range 2 {
		d.reconcile()
	}
	d.wantFindings(map[string]models.DifferenceKind{})
	if n := d.inFlight(); open != 0 || n != 0 {
		d.Errorf("%d tasks are open, %d debits in flight", open, n)
	}
	if n := len(d.ledgerKeys()); n < 5 {
		d.Errorf("only %d debits were made", n)
	}
	modelstest.AuditRail(d, d.store)
}
