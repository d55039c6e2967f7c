package jobs

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"partnerbilling/jobs/webhook"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/seal"
)

// received is a notification that a receiver got.
type received struct {
	header http.Header
	body   string
}

// receiver is a partner's server. It gives its answers in order, and 200 when none is left.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	answers []http.HandlerFunc
	got     []received
}

func newReceiver(t *testing.T, answers ...http.HandlerFunc) *receiver {
	r := &receiver{answers: answers}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	r.mu.Lock()
	r.got = append(r.got, received{q.Header.Clone(), string(body)})
	answer := func(http.ResponseWriter, *http.Request) {}
	if len(r.answers) > 0 {
		answer, r.answers = r.answers[0], r.answers[1:]
	}
	r.mu.Unlock()
	answer(w, q)
}

func (r *receiver) requests() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

func status(code int, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
	}
}

func times(n int, answer http.HandlerFunc) (all []http.HandlerFunc) {
	for range n {
		all = append(all, answer)
	}
	return all
}

// deliveries is a Site with events to deliver. The service's clock stands still.
type deliveries struct {
	*testing.T
	store *models.Store
	ring  *seal.Keyring
	site  models.Site
	job   *DeliverWebhook
}

func newDeliveries(t *testing.T, url string) *deliveries {
	t.Parallel()
	ring, err := seal.ParseKeyring(seal.GenerateMasterKey())
	if err != nil {
		t.Fatal(err)
	}
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	d := &deliveries{T: t, store: store, ring: ring, site: modelstest.Site(t, store)}
	d.job = NewDeliverWebhook(Config{
		Store: store, Keyring: ring, WebhookTargets: models.WebhookTargets{Sandbox: true, Loopback: true},
		Log: slog.New(slog.DiscardHandler),
	})
	d.job.Random = func() float64 { return 0.5 } // no jitter
	t.Cleanup(func() { d.job.Sender.Close() })
	if url != "" {
		d.put(models.SiteID{}, url)
	}
	return d
}

func (d *deliveries) put(site models.SiteID, url string) {
	d.Helper()
	if _, _, err := d.store.PutWebhookEndpoint(d.Context(), d.ring, d.site.OrganisationID, site, url); err != nil {
		d.Fatal(err)
	}
}

func (d *deliveries) insert(site models.SiteID) (models.WebhookEventID, models.TaskID) {
	d.Helper()
	paid := models.MaxAmount
	push := models.TransactionStatusPush{
		SiteID: models.PushSite{ID: site}, PaymentIntentID: models.NewPaymentIntentID(), TransactionStatus: "Settled",
		OrderID: "a<b>&\u2028🧾", AmountPaid: &paid,
	}
	id, task, err := d.store.InsertWebhookEvent(d.Context(), d.site.OrganisationID, models.NewTraceID(), push)
	if err != nil {
		d.Fatal(err)
	}
	return id, task
}

func (d *deliveries) event(id models.WebhookEventID) (models.WebhookEvent, []models.WebhookAttempt) {
	d.Helper()
	event, attempts, err := d.store.WebhookEvent(d.Context(), d.site.OrganisationID, id)
	if err != nil {
		d.Fatal(err)
	}
	return event, attempts
}

// deliver runs the task at the time of each attempt, and once a millisecond before, until the event
// is final. It returns the event's status and the times of the attempts since noon.
func (d *deliveries) deliver(id models.WebhookEventID, task models.TaskID) (models.WebhookStatus, []time.Duration) {
	d.Helper()
	for range 10 {
		_ = d.job.Run(d.Context(), models.Task{ID: task})
		event, attempts := d.event(id)
		if event.Status != models.WebhookPending {
			var at []time.Duration
			for _, a := range attempts {
				at = append(at, a.StartedAt.Sub(noon))
			}
			return event.Status, at
		}
		modelstest.SetClock(d, d.store, event.NextAttemptAt-1)
		if err := d.job.Run(d.Context(), models.Task{ID: task}); err != nil {
			d.Fatalf("before the attempt is due: %v", err)
		}
		modelstest.SetClock(d, d.store, event.NextAttemptAt)
	}
	d.Fatal("the event is not final after ten attempts")
	return "", nil
}

const day = 24 * time.Hour

// schedule holds the times of the attempts since the event, in the default schedule.
var schedule = []time.Duration{
	0, 10 * time.Second, 130 * time.Second, 1330 * time.Second,
	1330*time.Second + 3*time.Hour, 1330*time.Second + 3*time.Hour + day,
}

func TestAttemptTimes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []http.HandlerFunc
		status  models.WebhookStatus
		at      []time.Duration
	}{
		"200": {times(1, status(200)), models.WebhookDelivered, schedule[:1]},
		"204": {times(1, status(204)), models.WebhookDelivered, schedule[:1]},
		"299": {times(1, status(299)), models.WebhookDelivered, schedule[:1]},
		"301 to 200": {times(1, status(301, "Location", "/elsewhere")), models.WebhookDelivered,
			schedule[:2]},
		"307": {times(2, status(307, "Location", "/elsewhere")), models.WebhookDelivered,
			schedule[:3]},
		"400":           {times(3, status(400)), models.WebhookDelivered, schedule[:4]},
		"410 ends it":   {times(1, status(410)), models.WebhookFailed, schedule[:1]},
		"410 after 500": {append(times(1, status(500)), status(410)), models.WebhookFailed, schedule[:2]},
		"429 with a delay": {times(1, status(429, "Retry-After", "30")), models.WebhookDelivered,
			[]time.Duration{0, 30 * time.Second}},
		"503 with a short delay": {times(1, status(503, "Retry-After", "1")), models.WebhookDelivered, schedule[:2]},
		"503 with a long delay": {times(1, status(503, "Retry-After", "86400")), models.WebhookDelivered,
			[]time.Duration{0, time.Hour}},
		"500 five times, 200": {times(5, status(500)), models.WebhookDelivered, schedule},
		"500 six times":       {times(6, status(500)), models.WebhookFailed, schedule},
		"an aborted connection": {times(1, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
			models.WebhookDelivered, schedule[:2]},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t, c.answers...)
			d := newDeliveries(t, r.URL)
			id, task := d.insert(d.site.ID)
			got, at := d.deliver(id, task)
			if diff := cmp.Diff(c.at, at); diff != "" || got != c.status {
				t.Errorf("%s, attempts at (-want +got):\n%s", got, diff)
			}
			requests := r.requests()
			for i, q := range requests {
				attempt := q.header.Get("svc-webhook-attempt")
				if q.body != requests[0].body || q.header.Get("webhook-id") != id.String() ||
					attempt != strconv.Itoa(i+1) {
					t.Errorf("request %d: %s, %v", i+1, q.body, q.header)
				}
			}
			event, _ := d.event(id)
			if len(requests) != len(c.at) || requests[0].body != string(event.Body) {
				t.Errorf("%d requests; sent %q, stored %q", len(requests), requests[0].body, event.Body)
			}
			modelstest.Audit(t, d.store)
		})
	}
}

func TestFailedRunReturnsItsRetry(t *testing.T) {
	d := newDeliveries(t, newReceiver(t, status(500)).URL)
	_, task := d.insert(d.site.ID)
	err := d.job.Run(t.Context(), models.Task{ID: task})
	var failure *DeliveryError
	if !errors.As(err, &failure) || failure.Stage != StageSend ||
		err.Error() != "deliver webhook: send: answered 500; retry in 10s" {
		t.Errorf("the run ended with %v", err)
	}
	if err := d.job.Run(t.Context(), models.Task{ID: task}); err != nil {
		t.Errorf("a second run at once: %v", err)
	}
}

// verify reports whether the Standard Webhooks signatures, and the plain signature, of a
// notification verify under the secret.
func (d *deliveries) verify(secret models.WebhookSecret, q received) (standard, plain bool) {
	d.Helper()
	wh, err := standardwebhooks.NewWebhook(secret.Reveal())
	if err != nil {
		d.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(secret.Reveal()))
	mac.Write([]byte(q.body))
	signature := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return wh.Verify([]byte(q.body), q.header) == nil, q.header.Get("x-svc-signature") == signature
}

func TestSecretRotationBetweenAttempts(t *testing.T) {
	r := newReceiver(t, times(3, status(500))...)
	d := newDeliveries(t, r.URL)
	_, task := d.insert(d.site.ID)
	before, err := d.store.WebhookSecrets(t.Context(), d.ring, d.site.OrganisationID)
	if err != nil {
		t.Fatal(err)
	}
	attempt := func(after time.Duration) {
		modelstest.AdvanceClock(t, d.store, after)
		_ = d.job.Run(t.Context(), models.Task{ID: task})
	}
	attempt(0)
	activateAt := noon.Add(15 * time.Second)
	rotation, err := d.store.RotateWebhookSecret(t.Context(), d.ring, d.site.OrganisationID, &activateAt)
	if err != nil {
		t.Fatal(err)
	}
	attempt(10 * time.Second)
	attempt(2 * time.Minute)
	attempt(25 * time.Hour)
	var got [][4]bool
	for _, q := range r.requests() {
		oldStandard, oldPlain := d.verify(before.Current, q)
		newStandard, newPlain := d.verify(rotation.Secret, q)
		got = append(got, [4]bool{oldStandard, newStandard, oldPlain, newPlain})
	}
	want := [][4]bool{
		{true, false, true, false}, {true, true, true, false}, {true, true, false, true}, {false, true, false, true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("standard under old, new; plain under old, new (-want +got):\n%s", diff)
	}
}

// A worker dies between its POST and its record: the next worker sends the same id and bytes.
func TestWorkerDiesAfterThePost(t *testing.T) {
	r := newReceiver(t)
	d := newDeliveries(t, r.URL)
	id, task := d.insert(d.site.ID)
	claimed, err := d.store.ClaimWebhooks(t.Context(), d.ring,
		[]models.WebhookClaim{{Task: task, Lease: models.NewLeaseToken()}}, models.WaitForLocked)
	if err != nil || claimed[0].Delivery == nil {
		t.Fatal(claimed, err)
	}
	delivery := claimed[0].Delivery
	d.job.Sender.Send(t.Context(), webhook.Message{
		URL: delivery.URL, Event: &delivery.Event, Attempt: delivery.Number, Secrets: delivery.Secrets,
	})
	if err := d.job.Run(t.Context(), models.Task{ID: task}); err != nil { // another worker, while the lease holds
		t.Fatal(err)
	}
	if n := len(r.requests()); n != 1 {
		t.Fatalf("%d requests under the lease", n)
	}
	expire := "UPDATE webhook_slots SET until = clock_timestamp() WHERE token IS NOT NULL"
	if _, err := d.store.DB().ExecContext(t.Context(), expire); err != nil {
		t.Fatal(err)
	}
	if err := d.job.Run(t.Context(), models.Task{ID: task}); err != nil {
		t.Fatal(err)
	}
	requests := r.requests()
	if len(requests) != 2 || requests[0].body != requests[1].body ||
		requests[1].header.Get("webhook-id") != id.String() {
		t.Errorf("requests %+v", requests)
	}
	event, attempts := d.event(id)
	if event.Status != models.WebhookDelivered || len(attempts) != 2 ||
		attempts[0].Error == "" || attempts[1].StatusCode != http.StatusOK {
		t.Errorf("event %+v, attempts %+v", event, attempts)
	}
}

// A shutdown during the POST does not lose its answer.
func TestShutdownDuringThePost(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := newReceiver(t, func(http.ResponseWriter, *http.Request) { cancel() })
	d := newDeliveries(t, r.URL)
	id, task := d.insert(d.site.ID)
	if err := d.job.Run(ctx, models.Task{ID: task}); err != nil {
		t.Error(err)
	}
	if event, _ := d.event(id); event.Status != models.WebhookDelivered {
		t.Errorf("event %+v", event)
	}
}

// Asynq requeues a run as soon as a shutdown begins, and may run it again before the retry is
// recorded. The retry must not depend on Asynq.
func TestShutdownDuringAFailingPost(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		w.WriteHeader(http.StatusInternalServerError)
	})
	d := newDeliveries(t, r.URL)
	id, task := d.insert(d.site.ID)
	_ = d.job.Run(ctx, models.Task{ID: task})
	event, _ := d.event(id)
	for _, want := range []struct {
		at    models.Millis
		tasks int
	}{{event.NextAttemptAt - 1, 0}, {event.NextAttemptAt, 1}} {
		modelstest.SetClock(t, d.store, want.at)
		due, err := d.store.ClaimDue(t.Context(), models.Dispatch{Queue: models.QueueWebhooks, Limit: 10, InFlight: 10})
		if err != nil || len(due) != want.tasks {
			t.Errorf("%s after the failure %d tasks are due, %v", want.at.Sub(noon), len(due), err)
		}
	}
}

func TestDeliverAtOnce(t *testing.T) {
	r := newReceiver(t, status(500))
	d := newDeliveries(t, r.URL)
	for i, want := range []int{500, 200} {
		id, task, err := d.store.CreateTestWebhook(t.Context(), d.site.OrganisationID, models.SiteID{},
			models.NewTraceID())
		if err != nil {
			t.Fatal(err)
		}
		attempt, err := d.job.Deliver(t.Context(), d.site.OrganisationID, task)
		if err != nil || attempt.StatusCode != want || attempt.Number != 1 {
			t.Errorf("test %d: %+v, %v", i, attempt, err)
		}
		if _, err := d.job.Deliver(t.Context(), d.site.OrganisationID, task); !errors.Is(err, models.ErrNothingDue) {
			t.Errorf("a second attempt: %v", err)
		}
		if event, _ := d.event(id); fmt.Sprint(event.Status) != map[int]string{500: "failed", 200: "delivered"}[want] {
			t.Errorf("event %+v", event)
		}
	}
}
