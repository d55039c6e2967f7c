package models_test

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/seal"
)

const webhookStart = models.Millis(1_800_000_000_000)

// webhooks is a store with a frozen clock, an organisation, its master key and, if a test
// configures one, an endpoint.
type webhooks struct {
	*models.Store
	t    *testing.T
	ring *seal.Keyring
	site models.Site

	master  string // the ring's text
	intents atomic.Int64
}

// intent returns an id that is later than every earlier id of the fixture.
func (w *webhooks) intent() models.PaymentIntentID {
	id := models.NewPaymentIntentID()
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(int64(webhookStart)+w.intents.Add(1))) // positive
	copy(id[:6], at[2:])
	return id
}

func newWebhooks(t *testing.T) *webhooks {
	t.Helper()
	master := seal.GenerateMasterKey()
	ring, err := seal.ParseKeyring(master)
	if err != nil {
		t.Fatal(err)
	}
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, webhookStart)
	return &webhooks{Store: store, t: t, ring: ring, site: modelstest.Site(t, store), master: master}
}

func (w *webhooks) put(site models.SiteID, url string) *models.WebhookSecret {
	w.t.Helper()
	_, secret, err := w.PutWebhookEndpoint(w.t.Context(), w.ring, w.site.OrganisationID, site, url)
	if err != nil {
		w.t.Fatalf("put endpoint: %v", err)
	}
	return secret
}

func (w *webhooks) push() models.TransactionStatusPush {
	paid := models.Amount(500)
	return models.TransactionStatusPush{
		SiteID: models.PushSite{ID: w.site.ID}, PaymentIntentID: w.intent(), TransactionStatus: "Settled",
		AmountPaid: &paid,
	}
}

func (w *webhooks) insert() (models.WebhookEventID, models.TaskID) {
	w.t.Helper()
	id, task, err := w.InsertWebhookEvent(w.t.Context(), w.site.OrganisationID, models.NewTraceID(), w.push())
	if err != nil {
		w.t.Fatalf("insert event: %v", err)
	}
	return id, task
}

func (w *webhooks) insertMany(n int) (ids []models.WebhookEventID, tasks []models.TaskID) {
	w.t.Helper()
	for range n {
		id, task := w.insert()
		ids, tasks = append(ids, id), append(tasks, task)
	}
	return ids, tasks
}

// tryClaim claims the attempt of one task. It returns ErrNothingDue if there is none to make now.
func (w *webhooks) tryClaim(task models.TaskID) (models.WebhookDelivery, error) {
	w.t.Helper()
	got, err := w.ClaimWebhooks(w.t.Context(), w.ring,
		[]models.WebhookClaim{{Task: task, Lease: models.NewLeaseToken()}}, models.WaitForLocked)
	switch {
	case err != nil:
		return models.WebhookDelivery{}, err
	case got[0].Err != nil:
		return models.WebhookDelivery{}, got[0].Err
	case got[0].Locked:
		w.t.Fatal("a claim that waits for locks found a lock")
	case got[0].Delivery == nil:
		return models.WebhookDelivery{}, models.ErrNothingDue
	}
	return *got[0].Delivery, nil
}

func (w *webhooks) claim(task models.TaskID) models.WebhookDelivery {
	w.t.Helper()
	d, err := w.tryClaim(task)
	if err != nil {
		w.t.Fatalf("claim: %v", err)
	}
	return d
}

func (w *webhooks) claimNothing(task models.TaskID) {
	w.t.Helper()
	if d, err := w.tryClaim(task); !errors.Is(err, models.ErrNothingDue) {
		w.t.Fatalf("claimed attempt %d, %v; want nothing due", d.Number, err)
	}
}

// result is the record of an attempt with a typical answer.
func result(d models.WebhookDelivery, v models.WebhookVerdict) *models.WebhookRecord {
	attempt := models.WebhookAttempt{
		StatusCode: 500, Duration: 7 * time.Millisecond, Address: "192.0.2.1:443", Error: "answered 500",
	}
	switch {
	case v.Status == models.WebhookDelivered:
		attempt.StatusCode, attempt.Error = 204, ""
	case v.Gone:
		attempt.StatusCode = 410
	}
	return &models.WebhookRecord{Delivery: d, Attempt: attempt, Verdict: v}
}

func (w *webhooks) record(d models.WebhookDelivery, v models.WebhookVerdict) []models.TaskID {
	w.t.Helper()
	return w.recordMany(result(d, v))
}

func (w *webhooks) recordMany(records ...*models.WebhookRecord) []models.TaskID {
	w.t.Helper()
	_, released, err := w.RecordWebhooks(w.t.Context(), records, 0)
	if err != nil {
		w.t.Fatalf("record: %v", err)
	}
	return released
}

func (w *webhooks) event(id models.WebhookEventID) (models.WebhookEvent, []models.WebhookAttempt) {
	w.t.Helper()
	event, attempts, err := w.WebhookEvent(w.t.Context(), w.site.OrganisationID, id)
	if err != nil {
		w.t.Fatalf("event: %v", err)
	}
	return event, attempts
}

func (w *webhooks) status(id models.WebhookEventID, want models.WebhookStatus) {
	w.t.Helper()
	if event, _ := w.event(id); event.Status != want {
		w.t.Fatalf("event is %s, want %s", event.Status, want)
	}
}

func (w *webhooks) endpoint(site models.SiteID) models.WebhookEndpoint {
	w.t.Helper()
	e, err := w.WebhookEndpoint(w.t.Context(), w.site.OrganisationID, site)
	if err != nil {
		w.t.Fatalf("endpoint: %v", err)
	}
	return e
}

func (w *webhooks) due() []models.Task {
	w.t.Helper()
	tasks, err := w.ClaimDue(w.t.Context(), models.Dispatch{Queue: models.QueueWebhooks, Limit: 1000, InFlight: 1000})
	if err != nil {
		w.t.Fatalf("claim due: %v", err)
	}
	return tasks
}

func (w *webhooks) advance(d time.Duration) { modelstest.AdvanceClock(w.t, w.Store, d) }

func (w *webhooks) alerts(kind string) (open int) {
	w.t.Helper()
	err := w.DB().NewRaw("SELECT count(*) FROM alerts WHERE kind = ? AND closed_at IS NULL", kind).Scan(w.t.Context(),
		&open)
	if err != nil {
		w.t.Fatal(err)
	}
	return open
}

var (
	delivered = models.WebhookVerdict{Status: models.WebhookDelivered}
	failed    = models.WebhookVerdict{Status: models.WebhookFailed}
	gone      = models.WebhookVerdict{Status: models.WebhookFailed, Gone: true}
)

func retryIn(d time.Duration) models.WebhookVerdict {
	return models.WebhookVerdict{Status: models.WebhookPending, Retry: d}
}
