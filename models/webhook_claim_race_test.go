package models_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// After a flush, Redis may run one task twice at the same moment.
func TestClaimWebhooksGivesEachAttemptOnce(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://one.example/")
	_, one := w.insert()
	_, other := w.insert()
	w.dispatch(one, other)
	got := w.claimDeliveries(one, other, one)
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
		for _, d := range w.claimDeliveries(tasks...) {
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
