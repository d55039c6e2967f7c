package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/jobs"
	"partnerbilling/models"
)

// traces is a billing with a partner's receiver, whose test plays the workers.
type traces struct {
	*hooks
	batching *batching
	paying   *paying
}

func newTracing(t *testing.T) *traces {
	tasks := make(chan []models.TaskID, 100)
	h := newHooks(t, func(cfg *api.Config) {
		cfg.Notify = func(made []models.TaskID) { tasks <- made }
	})
	h.Send("PUT", "/webhooks/endpoints/default",
		map[string]any{"url": h.receiver.URL, "events": models.WebhookEventTypes}).Expect(201)
	return &traces{h, &batching{billing: h.billing, tasks: tasks}, &paying{billing: h.billing, tasks: tasks}}
}

// trace gets the trace of the request that led to the answer.
func (tr *traces) trace(of *apitest.Answer) *apitest.Answer {
	return tr.Get("/traces/" + of.TraceID())
}

// runTasks executes every waiting task of a kind.
func (tr *traces) runTasks(kind models.TaskKind, run func(context.Context, models.Task) error) {
	tr.t.Helper()
	var tasks []models.TaskID
	check(tr.t, tr.store.DB().NewRaw("SELECT id FROM outbox WHERE kind = ?", string(kind)).Scan(tr.t.Context(), &tasks))
	for _, task := range tasks {
		check(tr.t, run(tr.t.Context(), models.Task{ID: task}))
	}
}

// traceData is the data of a trace.
type traceData struct {
	TraceID       string
	At            models.Millis
	Kind          string
	Batch         json.RawMessage
	PaymentIntent json.RawMessage
	Customer      json.RawMessage
	Rows          map[string]int
	Attempts      *int
	Events        []struct {
		IdempotencyKey, Type, Status string
		Attempts                     int
	}
}

func TestTraceOfBatch(t *testing.T) {
	tr := newTracing(t)
	for _, customer := range []string{"ada", "bob", "eve"} {
		tr.invite(t, customer)
		tr.Post("/sandbox/sites/"+tr.site.String()+"/customers/"+customer+"/signup", nil).Expect(200)
	}
	submitted := tr.Post(tr.batches(""), bodyOf("2026/11", "ada", "bob", "eve")).Expect(202)
	golden(t, "trace-batch-submitted", tr.trace(submitted).Expect(200))
	chunk := tr.batching.claim(t)
	tr.advance(t, time.Second)
	tr.batching.finish(t, chunk, outcomes(models.OutcomeSucceeded, models.OutcomeInsufficientFunds)...)
	golden(t, "trace-batch-in-progress", tr.trace(submitted).Expect(200))
	tr.batching.finish(t, chunk, models.RowResult{Index: 2, Outcome: models.OutcomeSucceeded})
	tr.runTasks(models.TaskAnnounceBatch, (&jobs.Announce{Store: tr.store}).Run)
	tr.runTasks(models.TaskDeliverWebhook, tr.job.Run)
	golden(t, "trace-batch", tr.trace(submitted).Expect(200))

	retried := tr.Post(tr.batch("2026/11", "/retry"), `{"batchReference":"2026/11 again"}`).Expect(202)
	golden(t, "trace-batch-retry", tr.trace(retried).Expect(200))
	if got := dataOf[traceData](tr.trace(retried)); got.TraceID != retried.TraceID() {
		t.Errorf("trace %s, asked for %s", got.TraceID, retried.TraceID())
	}
	for what, again := range map[string]*apitest.Answer{
		"an identical resubmission": tr.Post(tr.batches(""), bodyOf("2026/11", "ada", "bob", "eve")).Expect(202),
		"a repeated retry": tr.Post(tr.batch("2026/11", "/retry"), `{"batchReference":"2026/11 again"}`).
			Expect(202),
		"a conflict":       tr.Post(tr.batches(""), bodyOf("2026/11", "ada")).Expect(409),
		"a validation":     tr.Post(tr.batches("/validation"), bodyOf("other", "ada")).Expect(200),
		"a cancellation":   tr.Post(tr.batch("2026/11", "/cancellation"), nil).Expect(200),
		"a refusal":        tr.Post(tr.batches(""), `{}`).Expect(400),
		"a GET":            tr.Get(tr.batch("2026/11", "")).Expect(200),
		"a GET of a trace": tr.trace(submitted).Expect(200),
	} {
		if a := tr.trace(again); a.Status != http.StatusNotFound {
			t.Errorf("%s has the trace %s", what, a.Body)
		}
	}
	tr.advance(t, models.BatchRetention)
	tr.trace(submitted).Refused(404, "requests:trace-not-found traceId")
}

func TestTraceOfPaymentIntent(t *testing.T) {
	tr := newTracing(t)
	keyed := tr.With("Idempotency-Key", "till-7")
	created := keyed.Post(tr.intents(""), `{"amount":1000,"orderId":"order 7","qrCodeFormat":"text"}`).Expect(201)
	golden(t, "trace-intent-created", tr.trace(created).Expect(200))
	code := dataOf[createdIntent](created).QRCode[len(publicURL+"/P/"):]
	tr.paying.finish(t, tr.paying.pay(t, code), models.TransactionResult{Status: models.TransactionSettled})
	golden(t, "trace-intent", tr.trace(created).Expect(200))
	replayed := keyed.Post(tr.intents(""), `{"amount":1000,"orderId":"order 7","qrCodeFormat":"text"}`).Expect(201)
	tr.trace(replayed).Refused(404, "requests:trace-not-found traceId")

	// The notification carries the trace id under which the partner finds all the rest.
	event := dataOf[traceData](tr.trace(created)).Events[0]
	var detail eventDetail
	tr.Get("/webhooks/events/" + event.IdempotencyKey).Expect(200).Data(&detail)
	if !strings.HasSuffix(detail.Body, `"traceId":"`+created.TraceID()+`"}`) {
		t.Errorf("the notification is %s", detail.Body)
	}

	// Time ends an intent for its trace as it does when it is read by itself, in one answer with
	// its event.
	expiring := tr.Post(tr.intents(""), `{"amount":1}`).Expect(201)
	tr.advance(t, models.DefaultIntentLife)
	golden(t, "trace-intent-expired", tr.trace(expiring).Expect(200))
}

func TestTraceOfInvitation(t *testing.T) {
	tr := newTracing(t)
	keyed := tr.With("Idempotency-Key", "k")
	invited := keyed.Post(tr.customers("/invitations"), `{"customerReference":"ada"}`).Expect(201)
	golden(t, "trace-invitation", tr.trace(invited).Expect(200))
	tr.trace(keyed.Post(tr.customers("/invitations"), `{"customerReference":"ada"}`).Expect(201)).
		Refused(404, "requests:trace-not-found traceId")
	tr.trace(tr.Post(tr.customer("ada", "/invitation-link"), nil).Expect(200)).
		Refused(404, "requests:trace-not-found traceId")
	tr.Post("/sandbox/sites/"+tr.site.String()+"/customers/ada/signup", nil).Expect(200)
	tr.advance(t, time.Millisecond) // events are ordered by time
	tr.Post(tr.customer("ada", "/revocation"), nil).Expect(200)
	golden(t, "trace-invitation-revoked", tr.trace(invited).Expect(200))

	overdue := tr.Post(tr.customers("/invitations"), `{"customerReference":"bob"}`).Expect(201)
	tr.advance(t, models.DefaultInvitationLife)
	if got := string(dataOf[traceData](tr.trace(overdue)).Customer); !strings.Contains(got, `"state":"expired"`) {
		t.Errorf("an invitation past its time is %s", got)
	}
}

func TestTraceOfTestEvent(t *testing.T) {
	tr := newTracing(t)
	tested := tr.Post("/webhooks/endpoints/default/test", nil).Expect(200)
	golden(t, "trace-test-event", tr.trace(tested).Expect(200))
}

// A foreign, unknown or malformed trace id has one and the same answer.
func TestTraceNotFound(t *testing.T) {
	b := newBilling(t, nil)
	own := b.Post(b.intents(""), `{"amount":1}`).Expect(201).TraceID()
	batch := b.Post(b.batches(""), bodyOf("r", "ada")).Expect(202).TraceID()
	invitation := b.Post(b.customers("/invitations"), `{"customerReference":"r"}`).Expect(201).TraceID()
	first := b.other.Get("/traces/" + own).Expect(404)
	golden(t, "trace-not-found", first)
	changed := []byte(own)
	changed[31] ^= 1
	for _, id := range []string{
		batch, invitation, string(models.NewTraceID()), string(changed), own[:31], own + "0", strings.ToUpper(own),
		strings.Repeat("0", 32),
		strings.Repeat("f", 32), strings.Repeat("z", 32), "x", "%ff", "%00", "%2F", "%20" + own,
		"evt_01932c07-0000-7000-8000-00000000dead", strings.Repeat("a", 4000),
	} {
		a := b.other.Get("/traces/" + id).Expect(404)
		body := strings.Replace(string(a.Body), a.TraceID(), first.TraceID(), 1)
		if body != string(first.Body) {
			t.Errorf("%s: %s, want %s", id, a.Body, first.Body)
		}
		a.Header.Set("Date", first.Header.Get("Date"))
		if diff := cmp.Diff(first.Header, a.Header); diff != "" {
			t.Errorf("%s: headers (-first +this):\n%s", id, diff)
		}
	}
	b.Get("/traces/" + own).Expect(200)
	b.app.Get("/traces/"+own).Refused(403, "auth:insufficient-scope")
}
