package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/queue"
)

// history is a database with one of everything that ends, and of everything that is still open.
// Its clock stands still.
type history struct {
	*deliveries
	jobs queue.Jobs
}

func newHistory(t *testing.T) *history {
	h := &history{deliveries: newDeliveries(t, newReceiver(t).URL)}
	h.jobs = New(Config{
		Store: h.store, Rail: rail.NewSandbox(h.store), Keyring: h.ring, Now: time.Now,
		WebhookTargets: models.WebhookTargets{Sandbox: true, Loopback: true}, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { h.jobs[models.TaskDeliverWebhook].(*DeliverWebhook).Sender.Close() })
	return h
}

// work runs due tasks until none is due.
func (h *history) work() {
	h.Helper()
	for busy := true; busy; {
		busy = false
		for _, name := range models.Queues {
			due, err := h.store.ClaimDue(h.Context(),
				models.Dispatch{Queue: name, Limit: 100, InFlight: 100, Total: 1000})
			if err != nil {
				h.Fatal(err)
			}
			for _, task := range due {
				busy = true
				if err := h.jobs[task.Kind].Run(h.Context(), task); err != nil {
					h.Fatal(err)
				}
			}
		}
	}
}

// sweep runs the retention sweep and checks what has disappeared, one line a row, and that nothing
// else has changed.
func (h *history) sweep(at time.Duration, gone ...string) {
	h.Helper()
	modelstest.SetClock(h, h.store, noon.Add(at))
	before := h.rows()
	if err := DropHistory(h.store).Run(h.Context(), models.Task{ID: models.TaskID(uuid.New())}); err != nil {
		h.Fatal(err)
	}
	after := h.rows()
	var removed []string
	for row, n := range before {
		for range n - after[row] {
			removed = append(removed, h.label(row))
		}
	}
	for row, n := range after {
		if n <= before[row] {
			continue
		}
		if !strings.HasPrefix(row, "customer_links ") || !strings.Contains(row, `"party": null`) {
			h.Errorf("after %s the sweep wrote %s", at, row)
		}
	}
	slices.Sort(gone)
	slices.Sort(removed)
	if diff := cmp.Diff(gone, removed); diff != "" {
		h.Errorf("removed after %s (-want +got):\n%s", at, diff)
	}
}

// rows counts the rows of all tables, each as its table and its JSON.
func (h *history) rows() map[string]int {
	h.Helper()
	all := map[string]int{}
	for _, r := range models.TableRetentions() {
		var found []string
		query := fmt.Sprintf("SELECT to_jsonb(t)::text FROM %s t", r.Table)
		if err := h.store.DB().NewRaw(query).Scan(h.Context(), &found); err != nil {
			h.Fatal(err)
		}
		for _, row := range found {
			if r.Table != "service_clock" {
				all[r.Table+" "+row]++
			}
		}
	}
	return all
}

// label names a row for people.
func (h *history) label(row string) string {
	h.Helper()
	table, text, _ := strings.Cut(row, " ")
	var columns map[string]any
	if err := json.Unmarshal([]byte(text), &columns); err != nil {
		h.Fatal(err)
	}
	parts := []string{table}
	for _, column := range []string{
		"batch_reference", "customer_reference", "order_id", "key", "type", "status", "transaction_status",
	} {
		if value, ok := columns[column].(string); ok && (column != "key" || table == "idempotency_keys") {
			parts = append(parts, value)
		}
	}
	return strings.Join(parts, " ")
}

// intent creates a payment intent. With a payer its payment starts, unless it is cancelled.
func (h *history) intent(order string, payer *models.Party, cancelled bool) {
	h.Helper()
	intent, _, err := h.store.CreatePaymentIntent(models.WithTraceID(h.Context(), models.NewTraceID()),
		models.NewPaymentIntent{SiteID: h.site.ID, Amount: price, OrderID: order, QRCodeFormat: models.QRCodeText}, nil)
	if err == nil && cancelled {
		_, _, err = h.store.CancelPaymentIntent(h.Context(), h.site.ID, intent.ID)
	}
	if err != nil {
		h.Fatal(err)
	}
	if payer != nil {
		modelstest.Pay(h, h.store, intent, *payer)
	}
}

// closeBatches closes n overdue batches.
func (h *history) closeBatches(n int) {
	h.Helper()
	for range n {
		if _, err := h.store.CloseOverdueBatch(h.Context()); err != nil {
			h.Fatal(err)
		}
	}
}

// closeOneAlert closes one of two alerts.
func (h *history) closeOneAlert() {
	h.Helper()
	alerts, err := h.store.OpenAlerts(h.Context(), 10)
	if err != nil || len(alerts) != 2 {
		h.Fatalf("alerts %+v, %v", alerts, err)
	}
	if err := h.store.CloseAlert(h.Context(), alerts[0].Kind, alerts[0].Subject); err != nil {
		h.Fatal(err)
	}
}

// doubtful submits a batch whose only row is claimed by a worker that dies.
func (h *history) doubtful(reference string) {
	h.Helper()
	done := modelstest.Submit(h, h.store, modelstest.Batch(h.site, reference, "ada"))
	chunk, err := h.store.ClaimChunk(h.Context(), done.Tasks[0], models.NewLeaseToken(),
		models.Part{Rows: models.ChunkRows})
	if err != nil || len(chunk.Rows) != 1 {
		h.Fatalf("claim: %+v, %v", chunk, err)
	}
}

// fill makes one of everything through the product.
func (h *history) fill() {
	ctx, site := h.Context(), h.site.ID
	modelstest.Customer(h, h.store, site, "ada", models.BehaviourPays)
	modelstest.Customer(h, h.store, site, "left", models.BehaviourPays)
	for range 2 {
		if _, err := h.store.RevokeCustomer(ctx, site, "left"); err != nil {
			h.Fatal(err)
		}
	}
	client := models.ClientID(uuid.New())
	_, _, err := h.store.CreateInvitation(ctx, models.NewInvitation{SiteID: site, CustomerReference: "invited"},
		&models.IdempotencyKey{ClientID: client, Path: "/p", Key: "once", Fingerprint: []byte("f")})
	if err := errors.Join(err, h.store.UseAssertion(ctx, client, "expired", 1),
		h.store.UseAssertion(ctx, client, "live", noon*2)); err != nil {
		h.Fatal(err)
	}
	payer := modelstest.Payer(h, h.store, models.BehaviourPays)
	modelstest.Submit(h, h.store, modelstest.Batch(h.site, "done", "ada", "left"))
	h.intent("paid", &payer, false)
	h.work()
	slow := modelstest.Payer(h, h.store, models.BehaviourSlow)
	undecided := models.SandboxOrder{Key: "undecided", SandboxParticulars: models.SandboxParticulars{
		AgreementID: slow.AgreementID, Amount: 1, Currency: "AUD"}}
	if _, err := h.store.DebitSandbox(ctx, []models.SandboxOrder{undecided}); err != nil {
		h.Fatal(err)
	}
	h.doubtful("doubtful 1")
	h.doubtful("doubtful 2")
	h.intent("open", nil, false)
	h.intent("pending", &payer, false)
	h.intent("cancelled", nil, true) // its event stays pending
}

func (h *history) movements() []models.Movement {
	h.Helper()
	page, err := h.store.ListMovements(h.Context(), models.MovementQuery{
		SiteID: h.site.ID, Direction: models.Forward, Limit: models.MaxMovements,
	})
	if err != nil {
		h.Fatal(err)
	}
	return page.Items
}

// Retention removes each thing at the end of its period, to the millisecond, and nothing that is
// open, pending or in doubt. The books agree throughout.
func TestRetention(t *testing.T) {
	h := newHistory(t)
	h.fill()
	movements := h.movements()
	if len(movements) != 2 {
		t.Fatalf("movements %+v", movements)
	}
	modelstest.AuditRail(t, h.store)

	h.sweep(0, "client_assertions")
	h.sweep(day - time.Millisecond)
	h.sweep(day, "idempotency_keys once")
	h.closeBatches(2)
	h.closeOneAlert()
	modelstest.Submit(t, h.store, modelstest.Batch(h.site, "late", "ada"))
	modelstest.AuditRail(t, h.store)

	h.sweep(90*day - time.Millisecond)
	h.sweep(90*day, "batches done", "batch_rows ada", "batch_rows left", "sandbox_debits succeeded",
		"sandbox_debits succeeded")
	h.sweep(91*day - time.Millisecond)
	h.sweep(91*day, "alerts")
	h.closeBatches(1)
	h.sweep(91*day, "batches late", "batch_rows ada")
	modelstest.AuditRail(t, h.store)

	h.sweep(400*day - time.Millisecond)
	h.sweep(400*day, "customer_links left", "payment_intents paid Settled", "payment_intents cancelled Cancelled",
		"webhook_events transactionStatus delivered Settled", "webhook_attempts")
	h.sweep(4000 * day)
	modelstest.AuditRail(t, h.store)
	if diff := cmp.Diff(movements, h.movements()); diff != "" {
		t.Errorf("movements (-before +after):\n%s", diff)
	}
}

// A deployment's periods replace the defaults.
func TestRetentionIsConfigured(t *testing.T) {
	h := newHistory(t)
	h.store.SetRetention(models.Retention{
		Payments: 500 * day, Webhooks: 600 * day, Links: 700 * day, Alerts: 2 * day, SandboxRail: 800 * day,
	})
	h.fill()
	h.sweep(day, "client_assertions", "idempotency_keys once")
	h.closeBatches(2)
	h.closeOneAlert()
	h.sweep(3*day, "alerts")
	h.sweep(500*day-time.Millisecond, "batches done", "batch_rows ada", "batch_rows left")
	h.sweep(500*day, "payment_intents paid Settled", "payment_intents cancelled Cancelled")
	h.sweep(600*day - time.Millisecond)
	h.sweep(600*day, "webhook_events transactionStatus delivered Settled", "webhook_attempts")
	h.sweep(700*day - time.Millisecond)
	h.sweep(700*day, "customer_links left")
	h.sweep(800*day - time.Millisecond)
	h.sweep(800*day, "sandbox_debits succeeded", "sandbox_debits succeeded")
}
