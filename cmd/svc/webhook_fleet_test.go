package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"partnerbilling/api/client"
	"partnerbilling/deploy/local"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
	"partnerbilling/queue/queuetest"
)

// webhookFleet is a fleet with a Postgres of its own and a partner that receives webhooks.
type webhookFleet struct {
	*fleet
	postgres *local.Server
	partner  *webhookPartner
	events   int // inserted events
}

func newWebhookFleet(t *testing.T, variables ...string) *webhookFleet {
	t.Parallel()
	servers, err := local.Temp(t.Context(), local.Options{WithoutRedis: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := servers.Stop(context.Background()); err != nil { // the test's context has ended
			t.Error(err)
		}
	})
	store, err := models.Open(postgres.Config{DSN: servers.DatabaseURL})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	modelstest.Migrate(t, store)
	f := &webhookFleet{fleet: newFleet(t, servers.DatabaseURL, variables...), postgres: servers.Postgres}
	f.partner = newWebhookPartner(t)
	return f
}

// insert creates Sites, gives each an endpoint on the partner's server, and writes perSite events
// for each.
func (f *webhookFleet) insert(sites, perSite int) {
	f.Helper()
	ring, err := seal.ParseKeyring(f.env["SVC_MASTER_KEY"])
	if err != nil {
		f.Fatal(err)
	}
	// The first endpoint creates the organisation's secret, which signs the events of all Sites.
	_, secret, err := f.store.PutWebhookEndpoint(f.Context(), ring, f.site.OrganisationID, models.SiteID{},
		f.partner.URL)
	if err != nil {
		f.Fatal(err)
	}
	f.partner.trust(secret.Reveal())
	group, ctx := errgroup.WithContext(f.Context())
	group.SetLimit(8)
	for i := range sites {
		group.Go(func() error {
			site, err := f.store.CreateSite(ctx, f.site.OrganisationID, fmt.Sprint(i))
			if err != nil {
				return err
			}
			url := fmt.Sprintf("%s/%d", f.partner.URL, i)
			if _, _, err := f.store.PutWebhookEndpoint(ctx, ring, site.OrganisationID, site.ID, url); err != nil {
				return err
			}
			for n := range perSite {
				push := models.TransactionStatusPush{
					SiteID: models.PushSite{ID: site.ID}, PaymentIntentID: models.NewPaymentIntentID(),
					TransactionStatus: "Expired", OrderID: fmt.Sprintf("%d <&> \u2028 🧾", n),
				}
				_, _, err := f.store.InsertWebhookEvent(ctx, site.OrganisationID, models.NewTraceID(), push)
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		f.Fatal(err)
	}
	f.events += sites * perSite
}

// parkedSQL is true for an event that waits for its endpoint, and leasedSQL for one that a worker
// sends.
const (
	parkedSQL = "EXISTS (SELECT FROM webhook_slots p WHERE p.event_id = webhook_events.id AND p.until IS NULL)"
	leasedSQL = "EXISTS (SELECT FROM webhook_slots p WHERE p.event_id = webhook_events.id AND p.token IS NOT NULL)"
)

func (f *webhookFleet) count(where string) (n int) {
	f.Helper()
	if err := f.store.DB().NewRaw("SELECT count(*) FROM webhook_events WHERE "+where).
		Scan(f.Context(), &n); err != nil {
		f.Fatal(err)
	}
	return n
}

// await polls until done returns true.
func (f *webhookFleet) await(what string, done func() bool) {
	f.Helper()
	deadline := time.After(awaitTimeout)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			f.Fatalf("timed out waiting until %s; %d of %d events are delivered, %d are parked, %d are leased", what,
				f.count("status = 'delivered'"), f.events, f.count(parkedSQL), f.count(leasedSQL))
		}
	}
}

// requireDelivered waits until all events are delivered. The partner must have acknowledged each
// event between once and acknowledgedAtMost times, and have received the stored bytes in every
// request.
func (f *webhookFleet) requireDelivered(acknowledgedAtMost int) {
	f.Helper()
	f.await("all events are delivered", func() bool { return f.count("status = 'delivered'") == f.events })
	var stored []struct {
		ID   models.WebhookEventID
		Body []byte
	}
	if err := f.store.DB().NewRaw("SELECT id, body FROM webhook_events").Scan(f.Context(), &stored); err != nil {
		f.Fatal(err)
	}
	f.partner.mu.Lock()
	defer f.partner.mu.Unlock()
	for _, fault := range f.partner.faults {
		f.Errorf("the partner: %s", fault)
	}
	if len(f.partner.receipts) != f.events {
		f.Errorf("the partner received %d keys for %d events", len(f.partner.receipts), f.events)
	}
	for _, event := range stored {
		got := f.partner.receipts[event.ID.String()]
		if got == nil || got.body != string(event.Body) || got.acknowledged < 1 ||
			got.acknowledged > acknowledgedAtMost {
			f.Errorf("%s: the partner received %+v, stored is %s", event.ID, got, event.Body)
		}
	}
	if code, out, _ := svc(f.T, f.env, "admin", "audit"); code != 0 {
		f.Errorf("the audit found:\n%s", out)
	}
}

// A thousand events wait for a retry when a flush of Redis deletes the scheduled tasks. Each event
// is still delivered on time and once.
func TestWebhooksAfterRedisFlush(t *testing.T) {
	// The wait outlasts the first attempts on any machine. The test then advances service time.
	const wait = 10 * time.Minute
	f := newWebhookFleet(t, "SVC_WEBHOOK_RETRIES", wait.String(), "SVC_WEBHOOK_JITTER", "0")
	f.partner.setDown(true)
	f.insert(250, 4)
	f.startAPI()
	f.startWorker()
	f.startWorker()
	redis := queuetest.Client(t, f.redis.URL)
	f.await("a thousand retries wait in Postgres, most of them also in Redis", func() bool {
		if f.count("failures > 0 AND next_attempt_at > svc_now() AND NOT "+parkedSQL) < f.events {
			return false
		}
		return queuetest.Delayed(t, redis, "webhooks") > f.events/2 // interrupted attempts wait in Postgres only
	})
	if err := redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	f.partner.setDown(false)
	if _, err := f.store.AdvanceClock(t.Context(), wait); err != nil {
		t.Fatal(err)
	}
	f.requireDelivered(1)
}

// Postgres crashes while the partner processes notifications. The workers record the partner's
// answers after the restart.
func TestWebhooksAfterPostgresCrash(t *testing.T) {
	f := newWebhookFleet(t)
	f.insert(40, 8)
	f.partner.hold(100, 30)
	f.startAPI()
	f.startWorker()
	f.startWorker()
	open := f.partner.awaitFull(t)
	if err := f.postgres.Stop(t.Context(), local.Immediate); err != nil {
		t.Fatal(err)
	}
	open()
	if err := f.postgres.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.requireDelivered(2) // a lost or late record causes a second delivery
}

// A worker is killed while the partner processes notifications. The partner may receive them again
// under the same key.
func TestWebhooksAfterWorkerKill(t *testing.T) {
	f := newWebhookFleet(t)
	f.insert(40, 8)
	f.partner.hold(100, 30)
	f.startAPI()
	f.startWorker()
	open := f.partner.awaitFull(t)
	f.workers[0].kill() // before a delivery times out
	open()
	f.startWorker()
	for _, query := range []string{ // end the leases
		"UPDATE webhook_slots SET until = clock_timestamp() WHERE token IS NOT NULL",
		"UPDATE outbox SET redispatch_after = clock_timestamp() WHERE dispatched_at IS NOT NULL",
	} {
		if _, err := f.store.DB().ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	f.requireDelivered(2)
	interrupted := `EXISTS (
		SELECT FROM webhook_attempts a WHERE a.event_id = webhook_events.id AND error LIKE 'interrupted%')`
	if n := f.count(interrupted); n < 30 {
		t.Errorf("%d attempts were interrupted", n)
	}
}

// A checkout from end to end over HTTP: endpoint, payment intent, payment and notification.
func TestCheckoutNotifies(t *testing.T) {
	f := newWebhookFleet(t)
	f.startAPI()
	f.startWorker()
	f.startWorker()
	endpoint, err := f.api.PutWebhookEndpoint(t.Context(), client.DefaultEndpoint, f.partner.URL+"/checkout?till=1")
	if err != nil {
		t.Fatal(err)
	}
	f.partner.trust(endpoint.Secret)
	for behaviour, status := range map[string]string{"pays": "Settled", "declines": "Declined"} {
		const order = "a<b>&\u2028🧾"
		created, err := f.api.CreatePaymentIntent(t.Context(), f.site.ID.String(), client.NewPaymentIntent{
			Amount: 950, OrderID: order,
			LineItems: []client.LineItem{{ItemID: "flat white", Quantity: 2, AmountPerUnit: 475, AmountSubtotal: 950}},
		}, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.api.PayInSandbox(t.Context(), created.PaymentIntentID, behaviour); err != nil {
			t.Fatal(err)
		}
		f.events++
		f.await(behaviour, func() bool {
			n, got := f.partner.about(created.PaymentIntentID)
			if got && (n.TransactionStatus != status || n.OrderID != order || n.TransactionID == "" ||
				len(n.LineItems) != 1 ||
				n.SiteID.ID != f.site.ID.String() || (n.AmountPaid == 950) != (status == "Settled")) {
				t.Fatalf("%s: %+v", behaviour, n)
			}
			return got
		})
	}
	f.requireDelivered(1)
}
