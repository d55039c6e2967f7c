package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"partnerbilling/api/client"
)

// eventCounter is a partner's server that counts the requests with each webhook-id, by type.
type eventCounter struct {
	*httptest.Server

	mu     sync.Mutex
	counts map[string]map[string]int // by type and webhook-id
}

func newEventCounter(t *testing.T) *eventCounter {
	e := &eventCounter{counts: map[string]map[string]int{}}
	e.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		event := r.Header.Get("Svc-Event-Type")
		if e.counts[event] == nil {
			e.counts[event] = map[string]int{}
		}
		e.counts[event][r.Header.Get("Webhook-Id")]++
	}))
	t.Cleanup(e.Close)
	return e
}

// events returns the number of distinct events of each type, and that of repeated requests.
func (e *eventCounter) events() (byType map[string]int, repeated int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	byType = map[string]int{}
	for event, counts := range e.counts {
		byType[event] = len(counts)
		for _, n := range counts {
			repeated += n - 1
		}
	}
	return byType, repeated
}

// playRounds invites and signs up 100 customers in each of ten rounds and debits them in a batch.
// Of each round it revokes the first customer, and lets the invitation of another one expire.
func playRounds(t *testing.T, c *client.Client, site string) {
	t.Helper()
	for round := range 10 {
		batch := client.Batch{BatchReference: fmt.Sprint("round ", round)}
		group, ctx := errgroup.WithContext(t.Context())
		group.SetLimit(8)
		for n := range 100 {
			customer := fmt.Sprintf("customer %d of %d", n, round)
			batch.Rows = append(batch.Rows,
				client.Row{CustomerReference: customer, RowReference: fmt.Sprint(n), Amount: 1})
			group.Go(func() error {
				_, err := c.CreateInvitation(ctx, site, client.NewInvitation{CustomerReference: customer}, "")
				if err != nil {
					return err
				}
				_, err = c.SignUp(ctx, site, customer, "")
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		need(c.SubmitBatch(t.Context(), site, batch))(t)
		if settled := need(c.AwaitBatch(t.Context(), site, batch.BatchReference))(t); settled.Counts.Succeeded != 100 {
			t.Fatalf("%+v", settled.Counts)
		}
		need(c.RevokeCustomer(t.Context(), site, batch.Rows[0].CustomerReference))(t)
		need(c.CreateInvitation(t.Context(), site,
			client.NewInvitation{CustomerReference: fmt.Sprint("late in ", round)}, ""))(t)
	}
}

// Ten rounds of 100 customers and a batch: the partner that asked for every type of event gets each
// event once, and the one that asked for none of these types gets none.
func TestEachEventArrivesOnce(t *testing.T) {
	_, info := newDevFolder(t).start()
	counters := make([]*eventCounter, 2)
	clients := make([]*client.Client, 2)
	for i, types := range [][]string{{
		client.EventBatchSettled, client.EventRowCorrected, client.EventCustomerLinked, client.EventCustomerRevoked,
		client.EventCustomerExpired,
	}, nil} {
		o := info.Organisations[i]
		counters[i] = newEventCounter(t)
		clients[i] = client.New(client.Config{
			BaseURL: info.BaseURL, ClientID: o.ClientID.String(), ClientSecret: o.ClientSecret,
		})
		need(clients[i].PutWebhookEndpoint(t.Context(), client.DefaultEndpoint, counters[i].URL, types...))(t)
		playRounds(t, clients[i], o.Sites[0].SiteID.String())
	}
	need(clients[0].AdvanceClock(t.Context(), 8*24*time.Hour))(t) // expires the invitations

	want := map[string]int{
		client.EventCustomerLinked: 1000, client.EventBatchSettled: 10, client.EventCustomerRevoked: 10,
		client.EventCustomerExpired: 10,
	}
	pending := client.WebhookEventFilter{Status: "pending"}
	deadline := time.After(awaitTimeout)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		got, repeated := counters[0].events()
		if maps.Equal(got, want) && len(collect(t, clients[0].WebhookEvents(t.Context(), pending))) == 0 {
			if repeated != 0 {
				t.Errorf("%d requests repeat an event", repeated)
			}
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("received %v, want %v", got, want)
		}
	}
	for i, stored := range []int{1030, 0} {
		events := collect(t, clients[i].WebhookEvents(t.Context(), client.WebhookEventFilter{Limit: 100}))
		if len(events) != stored {
			t.Errorf("partner %d has %d events, want %d", i, len(events), stored)
		}
		for _, e := range events {
			if e.Status != "delivered" || e.AttemptCount != 1 {
				t.Errorf("the event %s is %s after %d attempts", e.IdempotencyKey, e.Status, e.AttemptCount)
			}
		}
	}
	if got, _ := counters[1].events(); len(got) != 0 {
		t.Errorf("the partner that asked for none received %v", got)
	}
}
