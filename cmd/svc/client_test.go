package main

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"partnerbilling/api"
	"partnerbilling/api/client"
)

// calls records the operations that a client calls.
type calls struct {
	mu   sync.Mutex
	list []string // method and path
}

// RoundTrip implements http.RoundTripper.
func (c *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.list = append(c.list, r.Method+" "+r.URL.EscapedPath())
	c.mu.Unlock()
	return http.DefaultTransport.RoundTrip(r)
}

// partnerPath matches the paths that partners call.
var partnerPath = regexp.MustCompile("^/(billing|checkout|webhooks|sandbox|traces)/")

// uncalled returns the operations of partners that were not called.
func (c *calls) uncalled(t *testing.T) []string {
	t.Helper()
	document, err := api.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var described struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(document, &described); err != nil {
		t.Fatal(err)
	}
	parameter := regexp.MustCompile(`\\\{[^}]+\\\}`)
	var missing []string
	operations := 0
	for path, item := range described.Paths {
		if !partnerPath.MatchString(path) {
			continue
		}
		pattern := regexp.MustCompile("^" + parameter.ReplaceAllString(regexp.QuoteMeta(path), "[^/]+") + "$")
		for method := range item {
			called := slices.ContainsFunc(c.list, func(call string) bool {
				m, p, _ := strings.Cut(call, " ")
				return strings.EqualFold(m, method) && pattern.MatchString(p)
			})
			if method == "parameters" {
				continue
			}
			operations++
			if !called {
				missing = append(missing, strings.ToUpper(method)+" "+path)
			}
		}
	}
	if operations < 35 {
		t.Errorf("the document has only %d operations of partners", operations)
	}
	return missing
}

// collect returns all items of a list.
func collect[T any](t *testing.T, list iter.Seq2[T, error]) []T {
	t.Helper()
	var items []T
	for item, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	return items
}

// need returns the value of a call that must succeed.
func need[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// testRequestLog follows the requests after a list.
func testRequestLog(t *testing.T, c *client.Client) {
	t.Helper()
	list := need(c.Requests(t.Context(), client.RequestFilter{Limit: 1, Method: "POST"}))(t)
	if len(list.Items) != 1 || list.Items[0].Method != http.MethodPost || list.Items[0].Status < 200 ||
		list.Items[0].ClientID == "" {
		t.Errorf("%+v", list)
	}
	ctx, stop := context.WithTimeout(t.Context(), awaitTimeout)
	defer stop()
	options := client.TailOptions{LastID: list.Position, Filter: client.RequestFilter{Status: "404"}}
	options.Connected = func(string) {
		if _, err := c.Trace(ctx, strings.Repeat("0", 32)); err == nil {
			t.Error("an unknown trace was found")
		}
	}
	for r, err := range c.TailRequests(ctx, options) {
		if err != nil || r.Route != "/traces/{traceId}" || !strings.HasSuffix(r.ErrorCode, ":trace-not-found") {
			t.Errorf("%+v, %v", r, err)
		}
		return
	}
}

// A partner's program does everything that the API offers with the Go client.
func TestClientCoversEveryOperation(t *testing.T) {
	d := newDevFolder(t)
	_, info := d.start()
	organisation, recorded := info.Organisations[0], &calls{}
	c := client.New(client.Config{
		BaseURL: info.BaseURL, ClientID: organisation.ClientID.String(), ClientSecret: organisation.ClientSecret,
		HTTP: &http.Client{Transport: recorded, Timeout: time.Minute},
	})
	site := organisation.Sites[0].SiteID.String()
	events := receiveEvents(t, c)
	testCustomers(t, c, site)
	testBatches(t, c, site)
	testPayments(t, c, site)
	testMovements(t, c, site)
	testWebhooks(t, c, site, events)
	testRequestLog(t, c)
	now, advanced, err := c.Clock(t.Context())
	if err != nil || now == 0 || advanced != 0 {
		t.Error(now, advanced, err)
	}
	if later := need(c.AdvanceClock(t.Context(), time.Hour))(t); later < now+time.Hour.Milliseconds() {
		t.Errorf("the clock went from %d to %d", now, later)
	}
	if missing := recorded.uncalled(t); len(missing) > 0 {
		t.Errorf("the client has no method for %s", strings.Join(missing, ", "))
	}
}

// receiveEvents configures the default endpoint for all types of events, and returns those that
// arrive.
func receiveEvents(t *testing.T, c *client.Client) <-chan client.Event {
	t.Helper()
	events := make(chan client.Event, 100)
	var handler http.Handler
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(receiver.Close)
	endpoint := need(c.PutWebhookEndpoint(t.Context(), client.DefaultEndpoint, receiver.URL,
		client.EventBatchSettled, client.EventRowCorrected, client.EventCustomerLinked, client.EventCustomerRevoked,
		client.EventCustomerExpired))(t)
	if endpoint.Secret == "" || len(endpoint.Events) != 6 {
		t.Fatalf("%+v", endpoint)
	}
	handler = client.WebhookHandler(func(_ context.Context, e client.Event) error {
		events <- e
		return nil
	}, "whsec_old", endpoint.Secret)
	return events
}

func testCustomers(t *testing.T, c *client.Client, site string) {
	t.Helper()
	ctx := t.Context()
	invitation := need(c.CreateInvitation(ctx, site, client.NewInvitation{CustomerReference: "a/b ü"}, ""))(t)
	if again := need(c.ResendInvitation(ctx, site, "a/b ü"))(t); again.SignupURL != invitation.SignupURL {
		t.Errorf("resent %q, created %q", again.SignupURL, invitation.SignupURL)
	}
	need(c.SignUp(ctx, site, "a/b ü", ""))(t)
	need(c.CreateInvitation(ctx, site, client.NewInvitation{CustomerReference: "poor"}, "key"))(t)
	need(c.SignUp(ctx, site, "poor", "insufficientFunds"))(t)
	need(c.CreateInvitation(ctx, site, client.NewInvitation{CustomerReference: "gone"}, ""))(t)
	need(c.RevokeCustomer(ctx, site, "gone"))(t)
	if got := need(c.Customer(ctx, site, "gone"))(t); got.State != client.LinkRevoked {
		t.Errorf("%+v", got)
	}
	linked := collect(t, c.Customers(ctx, site, client.CustomerFilter{State: client.LinkLinked, Limit: 1}))
	if n := need(c.CountCustomers(ctx, site, client.CustomerFilter{}))(t); len(linked) != 2 || n != 3 {
		t.Errorf("%d linked of %d", len(linked), n)
	}
	if trace := need(c.Trace(ctx, invitation.TraceID))(t); trace.Customer == nil || trace.Kind != "invitation" {
		t.Errorf("%+v", trace)
	}
}

func testBatches(t *testing.T, c *client.Client, site string) {
	t.Helper()
	ctx := t.Context()
	batch := client.Batch{BatchReference: "2026/11 #1", Rows: []client.Row{
		{CustomerReference: "a/b ü", RowReference: "1", Amount: 100},
		{CustomerReference: "poor", RowReference: "2", Amount: 200},
	}}
	predictions := need(c.ValidateBatch(ctx, site, batch))(t)
	if len(predictions) != 2 || predictions[0].Prediction != client.OutcomeSucceeded {
		t.Errorf("%+v", predictions)
	}
	need(c.SubmitBatch(ctx, site, batch))(t)
	if receipt := need(c.SubmitBatch(ctx, site, batch))(t); !receipt.Replayed || receipt.TotalAmount != 300 {
		t.Errorf("%+v", receipt)
	}
	settled := need(c.AwaitBatch(ctx, site, batch.BatchReference))(t)
	if settled.Rows[1].Outcome != client.OutcomeInsufficientFunds || settled.SucceededAmount != 100 {
		t.Errorf("%+v", settled)
	}
	if csv := need(c.BatchRowsCSV(ctx, site, batch.BatchReference))(t); strings.Count(string(csv), "\r\n") != 3 {
		t.Errorf("%q", csv)
	}
	need(c.RetryBatch(ctx, site, batch.BatchReference, "again"))(t)
	need(c.CancelBatch(ctx, site, "again"))(t)
	again := need(c.Batch(ctx, site, "again"))(t)
	if again.RetryOf != batch.BatchReference || again.RowCount != 1 {
		t.Errorf("%+v", again)
	}
	if list := collect(t, c.Batches(ctx, site, client.BatchFilter{Limit: 1})); len(list) != 2 ||
		list[0].BatchReference != "again" {
		t.Errorf("%+v", list)
	}
	_, err := c.Batch(ctx, site, "none")
	var refused *client.Error
	if !client.Has(err, "batches:batch-not-found") || !errors.As(err, &refused) || refused.TraceID == "" {
		t.Error(err)
	}
}

func testPayments(t *testing.T, c *client.Client, site string) {
	t.Helper()
	ctx := t.Context()
	created := need(c.CreatePaymentIntent(ctx, site, client.NewPaymentIntent{Amount: 950, OrderID: "order"}, ""))(t)
	need(c.PayInSandbox(ctx, created.PaymentIntentID, ""))(t)
	paid := need(c.PaymentIntent(ctx, site, created.PaymentIntentID, 20*time.Second))(t)
	if paid.TransactionStatus != client.StatusSettled || paid.AmountPaid != 950 || paid.PaymentURL == "" {
		t.Errorf("%+v", paid)
	}
	other := need(c.CreatePaymentIntent(ctx, site, client.NewPaymentIntent{Amount: 1}, "once"))(t)
	same := need(c.CreatePaymentIntent(ctx, site, client.NewPaymentIntent{Amount: 1}, "once"))(t)
	if same.PaymentIntentID != other.PaymentIntentID {
		t.Error("the idempotency key created two payment intents")
	}
	if got := need(c.CancelPaymentIntent(ctx, site, other.PaymentIntentID))(t); got.State != client.IntentFinal {
		t.Errorf("%+v", got)
	}
	settled := collect(t, c.PaymentIntents(ctx, site, client.PaymentIntentFilter{
		OrderID: "order", TransactionStatus: client.StatusSettled,
	}))
	if len(settled) != 1 || settled[0].PaymentIntentID != created.PaymentIntentID {
		t.Errorf("%+v", settled)
	}
}

func testMovements(t *testing.T, c *client.Client, site string) {
	t.Helper()
	ctx := t.Context()
	totals := need(c.TotalMovements(ctx, site, client.MovementFilter{}))(t)
	var sum int64
	for _, m := range collect(t, c.Movements(ctx, site, client.MovementFilter{Limit: 1})) {
		sum += m.Amount
	}
	if totals != (client.MovementTotals{Items: 2, Amount: 1050}) || sum != 1050 {
		t.Errorf("%+v, sum %d", totals, sum)
	}
	if csv := need(c.MovementsCSV(ctx, site, client.MovementFilter{}))(t); strings.Count(string(csv), "\r\n") != 3 {
		t.Errorf("%q", csv)
	}
}

func testWebhooks(t *testing.T, c *client.Client, site string, events <-chan client.Event) {
	t.Helper()
	ctx := t.Context()
	seen := map[string]client.Event{}
	for len(seen) < 4 {
		select {
		case e := <-events:
			seen[e.Type] = e
		case <-time.After(30 * time.Second):
			t.Fatalf("only %d types of events arrived", len(seen))
		}
	}
	if e := seen[client.EventTransactionStatus]; e.Status == nil || e.SiteID != site {
		t.Errorf("%+v", e)
	}
	if e := seen[client.EventBatchSettled]; e.Batch == nil || e.Batch.RowCount == 0 {
		t.Errorf("%+v", e)
	}
	if e := seen[client.EventCustomerRevoked]; e.Customer == nil || e.Customer.CustomerReference != "gone" {
		t.Errorf("%+v", e)
	}
	key := seen[client.EventTransactionStatus].IdempotencyKey
	if detail := need(c.WebhookEvent(ctx, key))(t); detail.Body == "" || detail.BodySHA256 == "" {
		t.Errorf("%+v", detail)
	}
	need(c.RedeliverWebhookEvent(ctx, key))(t)
	need(c.RedeliverWebhookEvents(ctx, client.WebhookEventFilter{Type: client.EventRowCorrected}))(t)
	if list := collect(t, c.WebhookEvents(ctx, client.WebhookEventFilter{SiteID: site, Limit: 2})); len(list) < 4 {
		t.Errorf("%d events", len(list))
	}
	testEndpoints(t, c, site)
	listening, cancel := context.WithCancel(ctx)
	defer cancel()
	next, stop := iter.Pull2(c.Listen(listening))
	defer stop()
	arrived := make(chan client.Delivery, 1)
	go func() {
		delivery, _, _ := next()
		arrived <- delivery
	}()
	for { // until one falls into the stream, which opens meanwhile
		created := need(c.CreatePaymentIntent(ctx, site, client.NewPaymentIntent{Amount: 1}, ""))(t)
		need(c.CancelPaymentIntent(ctx, site, created.PaymentIntentID))(t)
		select {
		case delivery := <-arrived:
			if !strings.Contains(delivery.Body, "Cancelled") || delivery.ID == "" {
				t.Errorf("%+v", delivery)
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func testEndpoints(t *testing.T, c *client.Client, site string) {
	t.Helper()
	ctx := t.Context()
	for _, name := range []string{client.DefaultEndpoint, site} {
		need(c.PutWebhookEndpoint(ctx, name, "http://127.0.0.1:1/"))(t)
		if e := need(c.WebhookEndpoint(ctx, name))(t); e.State != "active" || len(e.Events) != 1 {
			t.Errorf("%+v", e)
		}
		if test := need(c.TestWebhookEndpoint(ctx, name))(t); test.Status != "failed" || test.Error == "" {
			t.Errorf("%+v", test)
		}
	}
	if list := need(c.WebhookEndpoints(ctx))(t); len(list) != 2 {
		t.Errorf("%+v", list)
	}
	later := need(c.RotateWebhookSecret(ctx, nil))(t)
	now := need(c.RotateWebhookSecret(ctx, new(int64)))(t)
	if !strings.HasPrefix(now.Secret, "whsec_") || now.ActivateAt > later.ActivateAt-time.Hour.Milliseconds() {
		t.Errorf("activated now %+v, later %+v", now, later)
	}
	for _, name := range []string{client.DefaultEndpoint, site} {
		if err := c.DeleteWebhookEndpoint(ctx, name); err != nil {
			t.Error(err)
		}
	}
}
