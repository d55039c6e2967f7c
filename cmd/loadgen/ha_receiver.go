package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"partnerbilling/api/client"
	"partnerbilling/models"
)

// haReceiver is the server that receives and verifies the webhooks of all partners. It counts the
// deliveries of each event. It is safe for concurrent use.
type haReceiver struct {
	*httptest.Server

	mu       sync.Mutex
	secrets  []string                  // for the signatures, of all organisations
	keys     map[string]int            // number of deliveries, by event id
	statuses map[string]intentStatuses // by id of the payment intent
	refused  int                       // deliveries with an invalid signature
}

// intentStatuses holds the statuses of a payment intent that events have reported, by event id.
type intentStatuses map[string]string

// newHAReceiver starts a receiver.
func newHAReceiver() *haReceiver {
	r := &haReceiver{keys: map[string]int{}, statuses: map[string]intentStatuses{}}
	r.Server = httptest.NewServer(r)
	return r
}

// ServeHTTP implements http.Handler. It verifies and records one delivery.
func (r *haReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	event, err := client.ParseEvent(req.Header, body, r.secrets...)
	if err != nil {
		r.refused++
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	r.keys[event.IdempotencyKey]++
	if s := event.Status; s != nil {
		if r.statuses[s.PaymentIntentID] == nil {
			r.statuses[s.PaymentIntentID] = intentStatuses{}
		}
		r.statuses[s.PaymentIntentID][event.IdempotencyKey] = s.TransactionStatus
	}
}

// configure makes the receiver the webhook endpoint of the organisation.
func (r *haReceiver) configure(ctx context.Context, store *models.Store, owner models.OrganisationID) error {
	ring, err := keyring()
	if err != nil {
		return err
	}
	_, secret, err := store.PutWebhookEndpoint(ctx, ring, owner, models.SiteID{}, r.URL)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets = append(r.secrets, secret.Reveal())
	return nil
}

// check waits up to a minute until every event is recorded as delivered. It compares the recorded
// events with those that have arrived, and returns the breaches.
func (r *haReceiver) check(ctx context.Context, store *models.Store) (broken []string, err error) {
	var open int
	for deadline := time.Now().Add(time.Minute); ; {
		err = store.DB().NewRaw("SELECT count(*) FROM webhook_events WHERE status <> 'delivered'").Scan(ctx, &open)
		if err != nil || open == 0 || time.Now().After(deadline) {
			break
		}
		if !sleep(ctx, 250*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	var ids []models.WebhookEventID
	if err := store.DB().NewRaw("SELECT id FROM webhook_events").Scan(ctx, &ids); err != nil {
		return nil, err
	}
	if open > 0 {
		broken = append(broken, fmt.Sprintf("%d webhook events are not delivered", open))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused > 0 {
		broken = append(broken, fmt.Sprintf("%d deliveries of webhooks do not verify", r.refused))
	}
	for _, id := range ids {
		if r.keys[id.String()] == 0 {
			broken = append(broken, fmt.Sprintf("the webhook event %s has not arrived", id))
		}
	}
	if len(r.keys) != len(ids) {
		broken = append(broken, fmt.Sprintf("%d events have arrived of %d", len(r.keys), len(ids)))
	}
	return broken, nil
}

// repeated returns the number of events that have arrived, and the number of deliveries that repeat
// an event.
func (r *haReceiver) repeated() (events, repeated int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.keys {
		repeated += n - 1
	}
	return len(r.keys), repeated
}

// checkPayment compares the status of a payment intent with its events. There must be exactly one,
// with that status. It returns "" if they agree, otherwise a description.
func (r *haReceiver) checkPayment(id, status string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	told := r.statuses[id]
	for _, s := range told {
		if len(told) == 1 && s == status {
			return ""
		}
	}
	return fmt.Sprintf("payment intent %s is %s, and its webhooks say %v", id, status, told)
}
