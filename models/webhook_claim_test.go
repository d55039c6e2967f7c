package models_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// dispatch claims tasks as a dispatcher does, so that batched claims can lease them.
func (w *webhooks) dispatch(tasks ...models.TaskID) {
	w.t.Helper()
	claimed, err := w.ClaimTasks(w.t.Context(), tasks, models.Dispatch{InFlight: 16},
		models.Dispatch{InFlight: 16, Limit: 1000})
	if err != nil || len(claimed) != len(tasks) {
		w.t.Fatalf("claimed %d of %d tasks: %v", len(claimed), len(tasks), err)
	}
}

func (w *webhooks) claimMany(tasks ...models.TaskID) []*models.WebhookDelivery {
	w.t.Helper()
	var deliveries []*models.WebhookDelivery
	for _, claimed := range w.claimEach(tasks...) {
		deliveries = append(deliveries, claimed.Delivery)
	}
	return deliveries
}

func (w *webhooks) claimEach(tasks ...models.TaskID) []models.WebhookClaimed {
	w.t.Helper()
	claims := make([]models.WebhookClaim, len(tasks))
	for i, task := range tasks {
		claims[i] = models.WebhookClaim{Task: task, Lease: models.NewLeaseToken()}
	}
	got, err := w.ClaimWebhooks(w.t.Context(), w.ring, claims, models.SkipLocked)
	if err != nil || len(got) != len(tasks) {
		w.t.Fatalf("claim many: %d, %v", len(got), err)
	}
	return got
}

// parked reports whether the event of a task is parked.
func (w *webhooks) parked(task models.TaskID) (is bool) {
	w.t.Helper()
	must(w.t, w.DB().NewRaw("SELECT EXISTS (SELECT FROM webhook_slots WHERE task_id = ? AND until IS NULL)", task).
		Scan(w.t.Context(), &is))
	return is
}

func (w *webhooks) recordDelivered(deliveries ...*models.WebhookDelivery) {
	w.t.Helper()
	var records []*models.WebhookRecord
	for _, d := range deliveries {
		records = append(records, result(*d, delivered))
	}
	w.recordMany(records...)
}

// One transaction claims events in every state.
func TestClaimWebhooksTogether(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	_, plain := w.insert()
	_, undispatched := w.insert()
	_, later := w.insert()
	w.dispatch(plain, later)
	if _, err := w.DB().ExecContext(t.Context(), `
		UPDATE webhook_events SET next_attempt_at = svc_now() + 1000 WHERE task_id = ?`, later); err != nil {
		t.Fatal(err)
	}
	got := w.claimMany(undispatched, plain, later)
	if got[2] != nil {
		t.Errorf("took an event that is not due: %+v", got[2])
	}
	for i, task := range []models.TaskID{undispatched, plain} {
		d := got[i]
		if d == nil || d.Task != task || d.Number != 1 || d.URL != "https://one.example/" ||
			d.StartedAt != webhookStart || d.AfterFailure || len(d.Secrets.Live) != 1 || len(d.Event.Body) == 0 {
			t.Fatalf("delivery: %+v", d)
		}
	}
	if again := w.claimEach(plain); again[0] != (models.WebhookClaimed{}) {
		t.Errorf("claimed twice: %+v", again[0])
	}
	w.claimNothing(plain)
	if due := w.due(); len(due) != 0 {
		t.Errorf("leased, or planned for later, and still due: %v", due)
	}
	w.advance(time.Second)
	if due := w.due(); len(due) != 1 || due[0].ID != later {
		t.Errorf("due later: %v", due)
	}
}

// The error of one organisation's secrets does not fail the claims of others.
func TestClaimWebhooksWithoutSecrets(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	id, task := w.insert()
	_, err := w.DB().ExecContext(t.Context(), "DELETE FROM webhook_secrets")
	must(t, err)
	other := webhooks{Store: w.Store, t: t, ring: w.ring, site: modelstest.Site(t, w.Store), master: w.master}
	other.put(models.SiteID{}, "https://two.example/")
	_, healthy := other.insert()
	got := w.claimEach(task, healthy)
	if !errors.Is(got[0].Err, models.ErrNoWebhookSecret) || got[0].Delivery != nil {
		t.Errorf("without secrets: %+v", got[0])
	}
	if got[1].Delivery == nil {
		t.Errorf("with secrets: %+v", got[1])
	}
	w.status(id, models.WebhookPending)
	if due := w.due(); len(due) != 1 || due[0].ID != task {
		t.Errorf("due: %v", due)
	}
}

// The bounds of debits apply to debits only. Webhooks have a bound of their own, which leaves
// capacity for ClaimDue.
func TestClaimTasksBoundsEachQueueForItself(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	_, tasks := w.insertMany(6)
	debits := models.Dispatch{Queue: models.QueueDebits, InFlight: 1, Total: 2}
	claim := func(tasks []models.TaskID, limit, want int) {
		t.Helper()
		webhooks := models.Dispatch{Queue: models.QueueWebhooks, InFlight: 16, Limit: limit}
		if got, err := w.ClaimTasks(t.Context(), tasks, debits, webhooks); err != nil || len(got) != want {
			t.Errorf("claimed %d of %d webhooks, want %d; %v", len(got), len(tasks), want, err)
		}
	}
	claim(tasks[:3], 5, 3)
	claim(tasks[3:], 2, 2)
	claim(tasks[3:], 0, 0)
}

// Claims do not wait for the disk: a crash of Postgres may lose a claim whose attempt is in
// progress.
func TestWebhookClaimForgottenInACrash(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]models.WebhookVerdict{"delivered": delivered,
		"to be repeated": retryIn(time.Minute)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWebhooks(t)
			w.put(models.SiteID{}, "https://one.example/")
			id, task := w.insert()
			w.dispatch(task)
			first := w.claimMany(task)[0]
			for _, forget := range []string{
				"DELETE FROM webhook_slots",
				"UPDATE outbox SET epoch = 0, dispatched_at = NULL, redispatch_after = NULL",
			} {
				if _, err := w.DB().ExecContext(t.Context(), forget); err != nil {
					t.Fatal(err)
				}
			}
			w.record(*first, verdict)
			event, attempts := w.event(id)
			if event.Attempts != 1 || len(attempts) != 1 || attempts[0].Number != 1 {
				t.Errorf("event %+v, attempts %+v", event, attempts)
			}
			if verdict == delivered {
				w.status(id, models.WebhookDelivered)
				w.claimNothing(task)
				return
			}
			// a failure without the lease decides nothing: it goes out again, and at once
			w.status(id, models.WebhookPending)
			if due := w.due(); len(due) != 1 || due[0].ID != task {
				t.Errorf("due: %v", due)
			}
			if again := w.claimMany(task)[0]; again == nil || again.Number != 2 {
				t.Errorf("claimed again: %+v", again)
			}
		})
	}
}

// After a flush, Redis may run one task twice at the same moment.
func TestClaimWebhooksGivesEachAttemptOnce(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	_, one := w.insert()
	_, other := w.insert()
	w.dispatch(one, other)
	got := w.claimMany(one, other, one)
	if got[0] == nil || got[1] == nil || got[2] != nil {
		t.Fatalf("claimed %+v", got)
	}
	w.recordDelivered(got[0], got[1])
	if n := tasksLeft(t, w.Store); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
}

// claimRacing claims tasks, batched or one by one.
func (w *webhooks) claimRacing(together bool, tasks []models.TaskID) (got []models.WebhookDelivery, err error) {
	if together {
		for _, d := range w.claimMany(tasks...) {
			if d != nil {
				got = append(got, *d)
			}
		}
		return got, nil
	}
	for _, task := range tasks {
		d, claimErr := w.tryClaim(task)
		if claimErr == nil {
			got = append(got, d)
		} else if !errors.Is(claimErr, models.ErrNothingDue) {
			err = errors.Join(err, claimErr)
		}
	}
	return got, err
}

// Concurrent single and batched claims of the same tasks get each attempt once.
func TestConcurrentClaimsGiveEachAttemptOnce(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	_, err := w.DB().ExecContext(t.Context(), "UPDATE webhook_endpoints SET width = ?", models.WebhookFullWidth)
	must(t, err)
	tasks := make([]models.TaskID, models.WebhookFullWidth)
	for i := range tasks {
		_, tasks[i] = w.insert()
	}
	w.dispatch(tasks...)
	var mu sync.Mutex
	times := map[models.WebhookEventID]int{}
	var workers sync.WaitGroup
	for n := range 8 {
		mine := slices.Clone(tasks)
		rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
		workers.Go(func() {
			got, err := w.claimRacing(n%2 == 0, mine)
			mu.Lock()
			defer mu.Unlock()
			for _, d := range got {
				times[d.Event.ID]++
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	workers.Wait()
	for id, n := range times {
		if n != 1 {
			t.Errorf("event %s was claimed %d times", id, n)
		}
	}
	if len(times) != len(tasks) {
		t.Errorf("%d of %d events were claimed", len(times), len(tasks))
	}
}

func TestClaimWebhooksKeepsCapacity(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	_, tasks := w.insertMany(models.WebhookFirstWidth + 2)
	w.dispatch(tasks...)
	var got []*models.WebhookDelivery
	for i, claimed := range w.claimEach(tasks...) { // in the order in which they came
		if fits := i < models.WebhookFirstWidth; (claimed.Delivery != nil) != fits || w.parked(tasks[i]) == fits {
			t.Errorf("event %d: %+v", i, claimed)
		}
		got = append(got, claimed.Delivery)
	}
	over := tasks[models.WebhookFirstWidth:]
	if due := w.due(); len(due) != 0 {
		t.Errorf("%d parked events go out", len(due))
	}
	w.recordDelivered(got[0], got[1])
	endpoint, err := w.WebhookEndpoint(t.Context(), w.site.OrganisationID, models.SiteID{})
	if err != nil || endpoint.Breaker.Width != models.WebhookFirstWidth+2 {
		t.Errorf("endpoint after two successes: %+v, %v", endpoint, err)
	}
	w.dispatch(over...) // released by the record
	if d := w.claimMany(over...); d[0] == nil || d[1] == nil {
		t.Errorf("claimed %v once there was room", d)
	}
}

func TestClaimWebhooksOfAnOpenEndpoint(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	_, first := w.insert()
	_, second := w.insert()
	w.dispatch(first, second)
	if _, err := w.DB().ExecContext(t.Context(),
		`UPDATE webhook_endpoints SET open_until = svc_now() + 1000`); err != nil {
		t.Fatal(err)
	}
	w.claimEach(first, second)
	if !w.parked(first) || !w.parked(second) {
		t.Error("an event of an open endpoint is not parked")
	}
	w.advance(time.Second)
	if n, err := w.ReleaseWebhooks(t.Context()); n != 1 || err != nil {
		t.Fatalf("released %d probes, %v", n, err)
	}
	w.dispatch(first)
	if claimed := w.claimEach(first); claimed[0].Delivery == nil {
		t.Errorf("the probe: %+v", claimed[0])
	}
}

// A locked endpoint does not delay the claims of others.
func TestClaimWebhooksWaitsForNoEndpoint(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/") // a new one is not at its full width yet, and so is locked
	_, task := w.insert()
	w.dispatch(task)
	deciding, err := w.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deciding.ExecContext(t.Context(), `SELECT FROM webhook_endpoints FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if claimed := w.claimEach(task); claimed[0] != (models.WebhookClaimed{Locked: true}) {
		t.Errorf("claimed meanwhile: %+v", claimed[0])
	}
	if err := deciding.Rollback(); err != nil {
		t.Fatal(err)
	}
	if claimed := w.claimEach(task); claimed[0].Delivery == nil {
		t.Errorf("claimed afterwards: %+v", claimed[0])
	}
}

// pausedClaims returns a second store whose claims pause after they have read, and before they lock
// an event, while the test holds the advisory lock pausedClaim.
func (w *webhooks) pausedClaims(dsn string) *models.Store {
	w.t.Helper()
	for _, query := range []string{
		"CREATE SCHEMA paused",
		fmt.Sprintf(`CREATE FUNCTION paused.set_config(text, text, boolean) RETURNS text LANGUAGE plpgsql VOLATILE AS
$$ BEGIN PERFORM pg_advisory_xact_lock_shared(%d); RETURN ''; END $$`, pausedClaim),
	} {
		_, err := w.DB().ExecContext(w.t.Context(), query)
		must(w.t, err)
	}
	return openConfig(w.t, postgres.Config{DSN: dsn + "&search_path=paused,public,pg_catalog"})
}

const pausedClaim = 20261129

// A claim that has read an expired lease, and finds the event leased anew once it holds the lock,
// leaves the new lease alone.
func TestClaimLeavesANewLeaseAlone(t *testing.T) {
	t.Parallel()
	dsn := modelstest.DSN(t)
	w := &webhooks{Store: openConfig(t, postgres.Config{DSN: dsn}), t: t, ring: modelstest.Keyring(t, keyA)}
	modelstest.SetClock(t, w.Store, webhookStart)
	w.site = modelstest.Site(t, w.Store)
	w.put(models.SiteID{}, "https://one.example/")
	id, task := w.insert()
	w.dispatch(task)
	w.claim(task)
	_, err := w.DB().ExecContext(t.Context(), "UPDATE webhook_slots SET until = clock_timestamp()")
	must(t, err)

	paused := w.pausedClaims(dsn)
	holder, err := w.DB().Conn(t.Context())
	must(t, err)
	defer holder.Close()
	_, err = holder.ExecContext(t.Context(), fmt.Sprintf("SELECT pg_advisory_lock(%d)", pausedClaim))
	must(t, err)
	late := make(chan []models.WebhookClaimed)
	go func() {
		claim := models.WebhookClaim{Task: task, Lease: models.NewLeaseToken()}
		claimed, err := paused.ClaimWebhooks(t.Context(), w.ring, []models.WebhookClaim{claim}, models.SkipLocked)
		if err != nil {
			t.Error(err)
		}
		late <- claimed
	}()
	modelstest.AwaitLockWait(t, w.Store)
	second := w.claim(task)
	_, err = holder.ExecContext(t.Context(), fmt.Sprintf("SELECT pg_advisory_unlock(%d)", pausedClaim))
	must(t, err)
	if claimed := <-late; len(claimed) != 1 || !claimed[0].Locked {
		t.Errorf("the late claim: %+v", claimed)
	}
	if _, attempts := w.event(id); len(attempts) != 1 {
		t.Errorf("%d attempts are logged, want the interrupted one: %+v", len(attempts), attempts)
	}
	w.recordDelivered(&second)
	w.status(id, models.WebhookDelivered)
}
