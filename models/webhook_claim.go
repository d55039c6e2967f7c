package models

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // statements
	"slices"

	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// WebhookClaim asks for the due attempt of a task's event.
type WebhookClaim struct {
	Task  TaskID
	Lease LeaseToken // a new token, which identifies the claim
}

// WebhookClaimed is the result of a claim. The zero value says that there is no attempt to make
// now. The claim has then recorded the next steps of the event and the task.
type WebhookClaimed struct {
	Delivery *WebhookDelivery // the attempt to make; nil: none
	// Locked says that another transaction holds the event or its endpoint, or has just leased the
	// event or changed the endpoint. The claim has then decided nothing.
	Locked bool
	// Err is ErrNoWebhookSecret, or the failure to open the secrets. The event stays due.
	Err error
}

// LockWait says what ClaimWebhooks does with events and endpoints that other transactions hold.
type LockWait bool

// The ways to treat locks.
const (
	SkipLocked    LockWait = false // returns their claims as Locked at once
	WaitForLocked LockWait = true  // waits for the other transactions first
)

// ClaimWebhooks claims the due attempts of tasks' events, each for WebhookLease, in one
// transaction. It returns the results in the order of the claims. If an earlier worker has died
// during its attempt, the claim first logs and counts that attempt, without a known outcome.
//
// The commit does not wait for the disk. If Postgres crashes before the attempt is recorded, the
// event may be sent again, as after the death of a worker.
func (s *Store) ClaimWebhooks(
	ctx context.Context, ring *seal.Keyring, claims []WebhookClaim, wait LockWait,
) (claimed []WebhookClaimed, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		c := webhookClaims{tx: tx, claims: claims, results: make(map[LeaseToken]WebhookClaimed, len(claims))}
		err := c.run(ctx, ring, wait)
		claimed = make([]WebhookClaimed, len(claims))
		for i, claim := range claims {
			claimed[i] = c.results[claim.Lease]
		}
		return err
	})
	if err != nil {
		return nil, wrap("claim webhooks", err)
	}
	return claimed, nil
}

// webhookClaims are the claims of one transaction.
type webhookClaims struct {
	tx      postgres.Tx
	claims  []WebhookClaim
	results map[LeaseToken]WebhookClaimed

	due    []*claimedEvent // attempts that may begin, by RequestedAt, the earliest first
	parked []*claimedEvent // events to park, since their endpoints lack capacity

	// Tasks, by their next step.
	ended   []TaskID // there is nothing left to deliver
	held    []TaskID // another worker has leased the event
	planned []TaskID // the next attempt is due later
	leased  []TaskID // the attempt begins, and the dispatcher's lease of the task does not last
}

// claimedEvent is a row of claimWebhooksSQL.
type claimedEvent struct {
	WebhookEvent

	Task           TaskID
	Lease          LeaseToken
	Now            Millis
	TaskLeased     bool // the dispatcher's lease of the task lasts
	Locked         bool // another transaction holds the event
	Current        bool // the event is pending, and the task is that of its current round
	RoundFailures  int  // failed attempts in the current round
	Round          int  // the current round, from 1
	Usable         bool // the endpoint exists and is enabled
	HasEndpoint    bool
	EndpointSite   SiteID
	URL            string
	Healthy        bool // the endpoint's breaker is healthyBreaker
	AfterFailure   bool // the last attempt at the endpoint failed, or the last one of the event
	SlotNumber     int  // number of the attempt that the slot is leased for; 0: not leased
	SlotLive       bool // the slot is released or leased, and has not expired
	SlotAtEndpoint bool // the slot is at the endpoint to which the event goes now

	breaker WebhookBreaker // of the endpoint, set by lockEndpoints
}

func (e *claimedEvent) endpoint() endpointKey {
	return endpointKey{e.OrganisationID, e.EndpointSite}
}

// released reports whether the event has been released, so that it occupies capacity of its
// endpoint already.
func (e *claimedEvent) released() bool { return e.SlotLive && e.SlotNumber == 0 && e.SlotAtEndpoint }

// number returns the number of the next attempt. An interrupted attempt has used a number, too.
func (e *claimedEvent) number() int { return max(e.Attempts, e.SlotNumber) + 1 }

func (e *claimedEvent) slot() webhookSlot {
	return webhookSlot{
		endpoint: e.endpoint(), event: &e.WebhookEvent, task: e.Task, lease: e.Lease, number: e.number(), url: e.URL,
	}
}

// delivery returns the attempt that the event's worker makes now.
func (e *claimedEvent) delivery(secrets WebhookSecrets) *WebhookDelivery {
	return &WebhookDelivery{
		Task: e.Task, Event: e.WebhookEvent, Number: e.number(), Failures: e.RoundFailures,
		EndpointSite: e.EndpointSite, URL: e.URL, AfterFailure: e.AfterFailure,
		Once: e.Test && e.Round == 1, StartedAt: e.Now,
		Secrets: secrets, lease: e.Lease, round: e.Round,
	}
}

// run makes the claims. It locks events, endpoints, slots and tasks, in this order. One exception
// is classify, which drops slots before run locks endpoints: lockEndpoints waits for no lock.
func (c *webhookClaims) run(ctx context.Context, ring *seal.Keyring, wait LockWait) error {
	found, err := c.lockEvents(ctx, wait)
	if err != nil {
		return err
	}
	if err := c.classify(ctx, found); err != nil {
		return err
	}
	if err := c.lockEndpoints(ctx); err != nil {
		return err
	}
	if err := c.keepCapacity(ctx); err != nil {
		return err
	}
	if err := c.lease(ctx, ring); err != nil {
		return err
	}
	if len(c.parked) > 0 {
		if err := parkSlots(ctx, c.tx, slotsOf(c.parked)); err != nil {
			return err
		}
	}
	return c.moveTasks(ctx)
}

var (
	//go:embed webhook_claim.sql
	claimWebhooksText string
	claimWebhooksSQL  = postgres.SQL(claimWebhooksText)

	//go:embed webhook_claim_await.sql
	awaitWebhooksText string
	awaitWebhooksSQL  = postgres.SQL(awaitWebhooksText)

	//go:embed webhook_claim_interrupted.sql
	logInterruptedText string
	logInterruptedSQL  = postgres.SQL(logInterruptedText)

	//go:embed webhook_claim_give_up.sql
	giveUpText string
	giveUpSQL  = postgres.SQL(giveUpText)
)

// lockEvents locks and reads the events. It does not extend the leases of the tasks. The lease of a
// dispatched task lasts as long as the attempt, or the dispatcher is about to extend it.
func (c *webhookClaims) lockEvents(ctx context.Context, wait LockWait) (found []*claimedEvent, err error) {
	tasks, leases := make([]TaskID, 0, len(c.claims)), make([]LeaseToken, 0, len(c.claims))
	seen := make(map[TaskID]bool, len(c.claims))
	for _, claim := range c.claims {
		if !seen[claim.Task] { // after a flush of Redis one task may occur twice; one of them gets the attempt
			seen[claim.Task] = true
			tasks, leases = append(tasks, claim.Task), append(leases, claim.Lease)
		}
	}
	if wait == WaitForLocked {
		if _, err := c.tx.Run(ctx, awaitWebhooksSQL, postgres.Args{"tasks": tasks}); err != nil {
			return nil, err
		}
	}
	err = c.tx.Select(ctx, claimWebhooksSQL, postgres.Args{
		"tasks": tasks, "leases": leases, "healthy": healthyBreaker.columns(),
	}, &found)
	slices.SortFunc(found, func(a, b *claimedEvent) int {
		return cmp.Or(cmp.Compare(a.RequestedAt, b.RequestedAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return found, err
}

// classify collects the events with a due attempt, and decides what happens to the others. It logs
// interrupted attempts, and makes events without an enabled endpoint undelivered.
func (c *webhookClaims) classify(ctx context.Context, found []*claimedEvent) error {
	var interrupted, undeliverable []*claimedEvent
	for _, e := range found {
		leased := e.SlotNumber > 0
		switch {
		case e.Locked:
			c.results[e.Lease] = WebhookClaimed{Locked: true}
			continue
		case !e.Current:
			c.ended = append(c.ended, e.Task)
			continue
		case leased && e.SlotLive:
			c.held = append(c.held, e.Task)
			continue
		case e.NextAttemptAt > e.Now:
			c.planned = append(c.planned, e.Task)
			continue
		case leased:
			interrupted = append(interrupted, e)
		}
		if e.Usable || e.HasEndpoint && e.Test {
			c.due = append(c.due, e)
		} else {
			undeliverable = append(undeliverable, e)
			c.ended = append(c.ended, e.Task)
		}
	}
	if len(interrupted) > 0 {
		args := eventArgs(interrupted)
		started := make([]int64, len(interrupted))
		for i, e := range interrupted {
			started[i] = int64(e.NextAttemptAt)
		}
		args["started"] = started
		if _, err := c.tx.Run(ctx, logInterruptedSQL, args); err != nil {
			return err
		}
	}
	if len(undeliverable) == 0 {
		return nil
	}
	_, err := c.tx.Run(ctx, giveUpSQL, eventArgs(undeliverable))
	return err
}

// eventArgs returns the keys of events, one array for each column.
func eventArgs(all []*claimedEvent) postgres.Args {
	organisations, events := make([]OrganisationID, len(all)), make([]WebhookEventID, len(all))
	for i, e := range all {
		organisations[i], events[i] = e.OrganisationID, e.ID
	}
	return postgres.Args{"organisations": organisations, "events": events}
}

// lockEndpoints locks the unhealthy endpoints of due attempts and reads their breakers again, so
// that no other transaction decides about their capacity meanwhile. It does not wait for locked
// endpoints, so that no endpoint delays the claims of others.
func (c *webhookClaims) lockEndpoints(ctx context.Context) error {
	keys := distinct(c.due, func(e *claimedEvent) (endpointKey, bool) { return e.endpoint(), !e.Healthy })
	var locked map[endpointKey]*webhookEndpointRow
	if len(keys) > 0 {
		var err error
		if locked, _, err = readWebhookEndpoints(ctx, c.tx, lockFreeEndpointsSQL, keys); err != nil {
			return err
		}
	}
	c.due = slices.DeleteFunc(c.due, func(e *claimedEvent) bool {
		e.breaker = healthyBreaker
		if e.Healthy {
			return false
		}
		row := locked[e.endpoint()]
		if row == nil || row.URL != e.URL || row.DisabledAt != 0 && !e.Test { // held, or changed since
			c.results[e.Lease] = WebhookClaimed{Locked: true}
			return true
		}
		e.breaker, e.AfterFailure = row.WebhookBreaker, row.Failures > 0 || e.RoundFailures > 0
		return false
	})
	return nil
}

// keepCapacity keeps as many attempts due as their endpoints have capacity for. The other events
// are to be parked. An event that has not been released waits behind parked events that were
// requested earlier. A test never waits: it shows the partner whether the endpoint works again.
func (c *webhookClaims) keepCapacity(ctx context.Context) error {
	if len(c.due) == 0 {
		return nil
	}
	loads, err := endpointLoads(ctx, c.tx, distinct(c.due, func(e *claimedEvent) (endpointKey, bool) {
		return e.endpoint(), true
	}))
	if err != nil {
		return err
	}
	c.due = slices.DeleteFunc(c.due, func(e *claimedEvent) bool {
		load := loads[e.endpoint()]
		if e.released() {
			load.InFlight-- // the event itself
		}
		queued := !e.released() && e.waitsBehind(load.ParkedAt, load.ParkedEvent)
		if !e.Test && (queued || e.breaker.capacity(load.InFlight, e.Now) == 0) {
			c.parked = append(c.parked, e)
			return true
		}
		load.InFlight++
		return false
	})
	return nil
}

// slotsOf returns the slots to park or to lease for events.
func slotsOf(events []*claimedEvent) []webhookSlot {
	slots := make([]webhookSlot, len(events))
	for i, e := range events {
		slots[i] = e.slot()
	}
	return slots
}

// lease leases slots for the due attempts, except for organisations without usable secrets.
func (c *webhookClaims) lease(ctx context.Context, ring *seal.Keyring) error {
	organisations := distinct(c.due, func(e *claimedEvent) (OrganisationID, bool) { return e.OrganisationID, true })
	if len(organisations) == 0 {
		return nil
	}
	secrets, err := openWebhookSecrets(ctx, c.tx, ring, organisations)
	if err != nil {
		return err
	}
	c.due = slices.DeleteFunc(c.due, func(e *claimedEvent) bool {
		err := secrets[e.OrganisationID].err
		if err != nil {
			c.results[e.Lease] = WebhookClaimed{Err: wrap("secrets of webhook "+e.ID.String(), err)}
		}
		return err != nil
	})
	if len(c.due) == 0 {
		return nil
	}
	acquired, err := leaseSlots(ctx, c.tx, slotsOf(c.due))
	for _, e := range c.due {
		// Another transaction may have leased the slot after this one read it and before this one
		// locked the event.
		if !slices.Contains(acquired, e.Lease) {
			c.results[e.Lease] = WebhookClaimed{Locked: true}
			continue
		}
		c.results[e.Lease] = WebhookClaimed{Delivery: e.delivery(secrets[e.OrganisationID].WebhookSecrets)}
		if !e.TaskLeased {
			c.leased = append(c.leased, e.Task)
		}
	}
	return err
}
