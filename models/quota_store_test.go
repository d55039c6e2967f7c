package models_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// quotaed is a store with quotas and a clock that ages usage.
type quotaed struct {
	*models.Store
	dsn     string
	quotas  models.Quotas
	elapsed atomic.Int64
	site    models.Site
}

func newQuotaed(t *testing.T, quotas models.Quotas) *quotaed {
	t.Parallel()
	q := &quotaed{dsn: modelstest.DSN(t), quotas: quotas}
	q.Store = q.open(t)
	q.site = modelstest.Site(t, q.Store)
	return q
}

// open opens the store of another process.
func (q *quotaed) open(t *testing.T) *models.Store {
	store := openConfig(t, postgres.Config{DSN: q.dsn, StatementTimeout: 5 * time.Minute}) // for large fixtures
	store.SetQuotas(q.quotas, func() time.Time { return time.Unix(0, 0).Add(time.Duration(q.elapsed.Load())) })
	return store
}

// age makes every reading old.
func (q *quotaed) age() { q.elapsed.Add(int64(time.Minute)) }

// exceeded fails the test unless err is a QuotaError for the noun.
func exceeded(t testing.TB, noun models.QuotaNoun, err error) {
	t.Helper()
	var refused *models.QuotaError
	if !errors.As(err, &refused) || refused.Noun != noun {
		t.Errorf("got %v, want the quota of %s to be exceeded", err, noun)
	}
}

func (q *quotaed) submit(t *testing.T, reference string, rows int) (models.Submission, error) {
	return q.SubmitBatch(t.Context(), q.batch(reference, rows))
}

func (q *quotaed) batch(reference string, rows int) models.NewBatch {
	customers := make([]string, rows)
	for i := range customers {
		customers[i] = "customer"
	}
	return modelstest.Batch(q.site, reference, customers...)
}

func TestQuotaOfOpenRows(t *testing.T) {
	q := newQuotaed(t, models.Quotas{OpenRows: 5})
	first, err := q.submit(t, "first", 3)
	must(t, err)
	_, err = q.submit(t, "large", 3)
	exceeded(t, models.QuotaOpenRows, err)
	if refused := new(models.QuotaError); !errors.As(err, &refused) || refused.RetryAfter <= 0 || refused.Limit != 5 {
		t.Errorf("refused with %+v", refused)
	}
	_, err = q.submit(t, "second", 2)
	must(t, err)
	for range 2 { // by what the process knows, and by what the database has
		_, err = q.submit(t, "third", 1)
		exceeded(t, models.QuotaOpenRows, err)
		again, err := q.submit(t, "first", 3)
		if err != nil || !again.Replayed || again.Batch.ID != first.Batch.ID {
			t.Errorf("submitted again: %+v, %v", again, err)
		}
		other, err := q.submit(t, "first", 2)
		if err != nil || other.Conflict == nil {
			t.Errorf("another batch under the reference: %+v, %v", other, err)
		}
		q.age()
	}
	stranger := modelstest.Site(t, q.Store)
	modelstest.Submit(t, q.Store, modelstest.Batch(stranger, "first", "ada", "bob", "eve"))

	// Accepted work proceeds to its end, which lowers usage.
	finish(t, q.Store, claim(t, q.Store, first.Tasks[0]), models.RowResult{Index: 0,
		Outcome: models.OutcomeInsufficientFunds},
		models.RowResult{Index: 1, Outcome: models.OutcomeInsufficientFunds}, models.RowResult{Index: 2,
			Outcome: models.OutcomeDeclined})
	q.age()
	filler, err := q.submit(t, "filler", 3)
	must(t, err)
	retry := models.NewRetry{SiteID: q.site.ID, OrganisationID: q.site.OrganisationID, Parent: "first",
		Reference: "retry"}
	_, err = q.RetryBatch(t.Context(), retry)
	exceeded(t, models.QuotaOpenRows, err)
	finish(t, q.Store, claim(t, q.Store, filler.Tasks[0]), models.RowResult{Index: 0, Outcome: models.OutcomeDeclined},
		models.RowResult{Index: 1, Outcome: models.OutcomeDeclined}, models.RowResult{Index: 2,
			Outcome: models.OutcomeDeclined})
	q.age()
	done, err := q.RetryBatch(t.Context(), retry)
	if err != nil || done.Batch.Counts.Rows() != 2 {
		t.Errorf("retried: %+v, %v", done, err)
	}
	_, err = q.submit(t, "large", 2)
	exceeded(t, models.QuotaOpenRows, err)
	_, err = q.submit(t, "third", 1)
	must(t, err)
	done, err = q.RetryBatch(t.Context(), retry)
	if err != nil || !done.Replayed {
		t.Errorf("retried again: %+v, %v", done, err)
	}
	modelstest.Audit(t, q.Store)
}

func (q *quotaed) intent(t *testing.T, key *models.IdempotencyKey) (models.PaymentIntent, bool, error) {
	in := models.NewPaymentIntent{SiteID: q.site.ID, OrganisationID: q.site.OrganisationID, Amount: 1,
		QRCodeFormat: models.QRCodeText}
	return q.CreatePaymentIntent(t.Context(), in, key)
}

// keyOf is an idempotency key of a client on one path.
func keyOf(client models.ClientID, text string) *models.IdempotencyKey {
	return &models.IdempotencyKey{ClientID: client, Path: "/path", Key: text, Fingerprint: []byte("body")}
}

func TestQuotaOfEvents(t *testing.T) {
	q := newQuotaed(t, models.Quotas{Events: 2})
	key := keyOf(models.NewClientIDForTest(), "k")
	first, _, err := q.intent(t, key)
	must(t, err)
	second, _, err := q.intent(t, nil)
	must(t, err)
	full := func() {
		t.Helper()
		for range 2 {
			_, _, err = q.intent(t, nil)
			exceeded(t, models.QuotaEvents, err)
			_, _, err = q.intent(t, keyOf(key.ClientID, "other"))
			exceeded(t, models.QuotaEvents, err)
			again, replayed, err := q.intent(t, key)
			if err != nil || !replayed || again.ID != first.ID {
				t.Errorf("created again: %+v, %t, %v", again, replayed, err)
			}
			q.age()
		}
	}
	full()
	// Every final status is recorded and announced beyond the quota. Its event counts in place of
	// the payment intent.
	for _, intent := range []models.PaymentIntent{first, second} {
		_, _, err := q.CancelPaymentIntent(t.Context(), q.site.ID, intent.ID)
		must(t, err)
		if told := modelstest.PushedStatuses(t, q.Store, intent.ID); len(told) != 1 {
			t.Errorf("told %v", told)
		}
	}
	full()
	modelstest.Audit(t, q.Store)
	// as retention does
	_, err = q.DB().ExecContext(t.Context(), "DELETE FROM webhook_events WHERE payment_intent_id = ?", first.ID)
	must(t, err)
	q.age()
	_, _, err = q.intent(t, nil)
	must(t, err)
}

func TestQuotaOfInvitations(t *testing.T) {
	q := newQuotaed(t, models.Quotas{Invitations: 2})
	client := models.NewClientIDForTest()
	invite := func(reference string) (models.CustomerLink, bool, error) {
		in := models.NewInvitation{SiteID: q.site.ID, OrganisationID: q.site.OrganisationID,
			CustomerReference: reference}
		return q.CreateInvitation(t.Context(), in, keyOf(client, reference))
	}
	first, _, err := invite("first")
	must(t, err)
	_, _, err = invite("second")
	must(t, err)
	for range 2 {
		_, _, err = invite("third")
		exceeded(t, models.QuotaInvitations, err)
		again, replayed, err := invite("first")
		if err != nil || !replayed || again.ID != first.ID {
			t.Errorf("invited again: %+v, %t, %v", again, replayed, err)
		}
		_, err = q.FoldLinkChanges(t.Context(), 100) // which moves the usage, and does not change it
		must(t, err)
		q.age()
	}
	_, err = q.CompleteLink(t.Context(), first.ID, models.Party{CustomerID: "c", AgreementID: "a"})
	must(t, err)
	q.age()
	_, _, err = invite("third")
	must(t, err)
	_, _, err = invite("fourth")
	exceeded(t, models.QuotaInvitations, err)
	_, err = q.RevokeCustomer(t.Context(), q.site.ID, "second")
	must(t, err)
	q.age()
	_, _, err = invite("fourth")
	must(t, err)
}

func TestQuotaOfEndpoints(t *testing.T) {
	q := newQuotaed(t, models.Quotas{Endpoints: 3})
	ring, err := seal.ParseKeyring(seal.GenerateMasterKey())
	must(t, err)
	put := func(site models.SiteID) error {
		_, _, err := q.PutWebhookEndpoint(t.Context(), ring, q.site.OrganisationID, site, "https://example.com/")
		return err
	}
	sites := []models.SiteID{{}} // and the default
	for range 6 {
		site, err := q.CreateSite(t.Context(), q.site.OrganisationID, "Site")
		must(t, err)
		sites = append(sites, site.ID)
	}
	var there, refused sync.Map
	var all sync.WaitGroup
	for _, site := range sites {
		all.Go(func() {
			if err := put(site); err == nil {
				there.Store(site, true)
			} else {
				exceeded(t, models.QuotaEndpoints, err)
				refused.Store(site, true)
			}
		})
	}
	all.Wait()
	endpoints, err := q.WebhookEndpoints(t.Context(), q.site.OrganisationID)
	if err != nil || len(endpoints) != 3 {
		t.Fatalf("%d endpoints, %v", len(endpoints), err)
	}
	for _, e := range endpoints { // one that is there may be put again
		must(t, put(e.SiteID))
	}
	must(t, q.DeleteWebhookEndpoint(t.Context(), q.site.OrganisationID, endpoints[0].SiteID))
	refused.Range(func(site, _ any) bool {
		must(t, put(site.(models.SiteID)))
		return false
	})
}

// Concurrent requests in one process do not exceed a quota. Several processes exceed it at most by
// what the others admit while their readings are fresh.
func TestQuotaOvershoot(t *testing.T) {
	const quota, processes = 20, 3
	q := newQuotaed(t, models.Quotas{OpenRows: quota})
	stores := []*models.Store{q.Store}
	for range processes - 1 {
		stores = append(stores, q.open(t))
	}
	flood := func(round string, stores ...*models.Store) (rows int64) {
		var admitted atomic.Int64
		var all sync.WaitGroup
		for i := range 30 * len(stores) {
			all.Go(func() {
				batch := q.batch(fmt.Sprint(round, i), 1+i%3)
				_, err := stores[i%len(stores)].SubmitBatch(t.Context(), batch)
				if refused := new(models.QuotaError); err == nil {
					admitted.Add(int64(len(batch.Rows)))
				} else if !errors.As(err, &refused) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		return admitted.Load()
	}
	if rows := flood("one", stores[0]); rows != quota {
		t.Errorf("one process admitted %d rows of %d", rows, quota)
	}
	if rows := flood("others", stores[1:]...); rows != 0 {
		t.Errorf("the others admitted %d rows though nothing was left when they began", rows)
	}
	_, err := q.DB().ExecContext(t.Context(), "DELETE FROM outbox") // as the workers do in the end
	must(t, err)
	q.age()
	if rows := flood("all", stores...); rows < quota || rows > processes*quota {
		t.Errorf("all admitted %d rows of %d", rows, quota)
	}
	q.age()
	if rows := flood("late", stores...); rows != 0 {
		t.Errorf("%d more rows were admitted once all had read the usage", rows)
	}
}

// Usage is read from a bounded part of an index; beyond it, the number of events is an estimate.
func TestQuotaUsageOfManyEvents(t *testing.T) {
	const events, others = 130_000, 30_000
	q := newQuotaed(t, models.Quotas{Events: 1_000_000, OpenRows: 1_000_000, Invitations: 1_000_000})
	stranger := modelstest.Site(t, q.Store)
	for site, n := range map[models.Site]int{q.site: events, stranger: others} {
		_, err := q.DB().ExecContext(t.Context(), `
			INSERT INTO webhook_events (organisation_id, id, site_id, type, payment_intent_id, transaction_status,
				status, created_at,
				requested_at, trace_id, body)
			SELECT ?, intent.id, ?, 'transactionStatus', intent.id, 'Settled', 'delivered', 1, 1, '', 'x'
			FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, ?)) AS intent`, site.OrganisationID, site.ID,
			n)
		must(t, err)
	}
	modelstest.Vacuum(t, q.Store, "webhook_events")
	n, err := models.StoredEvents(t.Context(), q.Store, q.site.OrganisationID)
	if err != nil || n < events*95/100 || n > events*105/100 {
		t.Errorf("about %d events of %d, %v", n, events, err)
	}
	n, err = models.StoredEvents(t.Context(), q.Store, stranger.OrganisationID)
	if err != nil || n != others {
		t.Errorf("%d events of %d, %v", n, others, err)
	}
	plans, err := models.ExplainQuotas(t.Context(), q.Store, q.site.OrganisationID)
	must(t, err)
	for _, plan := range plans {
		if tables := sequential(plan); len(tables) > 0 || plan.Blocks() > 3000 {
			t.Errorf("reads %d blocks, all of %q: %s", plan.Blocks(), tables, plan.JSON)
		}
	}
}
