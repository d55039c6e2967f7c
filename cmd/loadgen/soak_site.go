package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"partnerbilling/api/client"
	"partnerbilling/models"
)

// soakSite is the program of a partner for one Site in a soak run. Its requests run concurrently.
// Requests about the same batch or payment, however, run one after another, so that each answer can
// be compared with earlier ones.
type soakSite struct {
	*haPartner
	till *till // holds the payments

	inviting sync.Mutex // held during an invitation
	signing  sync.Mutex // held during a sign-up

	state       sync.Mutex    // guards the fields below it
	idle        []*haBatch    // acknowledged batches that no request uses
	payable     []*haPayment  // created payment intents that are to be paid
	cancellable []*haPayment  // created payment intents that are to be cancelled
	pending     []*haPayment  // paid payment intents that are not known to be final
	payments    int           // number of payment intents
	invited     []soakInvitee // customers who have not signed up, in order of their references
	linked      []*haCustomer // customers who have signed up in the run, and are not revoked
	guests      []*haCustomer // customers who have signed up in the run
}

// soakInvitee is an invited customer, with the token of the invitation.
type soakInvitee struct{ reference, token string }

// newSoakSite returns the program for the Site of p. It uses the first till of p.
func newSoakSite(p *haPartner) *soakSite { return &soakSite{haPartner: p, till: p.tills[0]} }

// recentBatches is the number of batches that requests choose from.
const recentBatches = 64

// takeBatch takes one of the idle batches that were submitted or used last. It returns nil if there
// is none.
func (s *soakSite) takeBatch() *haBatch {
	s.state.Lock()
	defer s.state.Unlock()
	n := len(s.idle)
	if n == 0 {
		return nil
	}
	i := max(0, n-recentBatches) + s.random.IntN(min(n, recentBatches))
	b := s.idle[i]
	s.idle = append(s.idle[:i], s.idle[i+1:]...)
	return b
}

// returnBatch makes a batch available to other requests again.
func (s *soakSite) returnBatch(b *haBatch) {
	s.state.Lock()
	defer s.state.Unlock()
	s.idle = append(s.idle, b)
}

// withBatch calls do with a batch of takeBatch. If there is none, it submits one instead.
func (s *soakSite) withBatch(ctx context.Context, do func(b *haBatch) error) error {
	b := s.takeBatch()
	if b == nil {
		return s.submitBatch(ctx)
	}
	defer s.returnBatch(b)
	return do(b)
}

// batchSize returns a random number of rows. Most batches are small; a few have the maximum size.
func (s *soakSite) batchSize() int {
	switch n := s.random.IntN(100); {
	case n < 50:
		return 1 + s.random.IntN(10)
	case n < 85:
		return 11 + s.random.IntN(90)
	case n < 97:
		return 101 + s.random.IntN(400)
	default:
		return models.MaxBatchRows
	}
}

// submitBatch submits a new batch.
func (s *soakSite) submitBatch(ctx context.Context) error {
	ctx = withKind(ctx, "submit a batch")
	s.state.Lock()
	b := s.newBatch(s.batchSize())
	s.state.Unlock()
	b.first = time.Now()
	if err := s.submit(ctx, b); err != nil {
		return err
	}
	s.count(func(c *haCounts) { c.Batches++; c.Rows += len(b.Rows) })
	s.state.Lock()
	defer s.state.Unlock()
	s.batches, s.idle = append(s.batches, b), append(s.idle, b)
	return nil
}

func (s *soakSite) resubmitBatch(ctx context.Context) error {
	ctx = withKind(ctx, "submit a batch again")
	return s.withBatch(ctx, func(b *haBatch) error {
		s.count(func(c *haCounts) { c.Resubmissions++ })
		return s.submit(ctx, b)
	})
}

func (s *soakSite) cancelBatch(ctx context.Context) error {
	ctx = withKind(ctx, "cancel a batch")
	return s.withBatch(ctx, func(b *haBatch) error { return s.cancel(ctx, b) })
}

func (s *soakSite) readBatch(ctx context.Context) error {
	ctx = withKind(ctx, "get a batch")
	return s.withBatch(ctx, func(b *haBatch) error { return s.read(ctx, b) })
}

// soakHold is the time for which a GET asks the service to hold its answer.
const soakHold = 5 * time.Second

// awaitBatch reads a batch, and asks the service to hold the answer until the batch is settled.
func (s *soakSite) awaitBatch(ctx context.Context) error {
	ctx = withKind(ctx, "await a batch")
	return s.withBatch(ctx, func(b *haBatch) error {
		var got client.BatchStatus
		began, err := s.call(ctx, func() error {
			answer, err := s.api.Do(ctx, client.Call{
				Method: http.MethodGet, Repeatable: true,
				Path:   client.Path("billing", "sites", s.site.String(), "batches", b.BatchReference),
				Header: http.Header{"Prefer": {fmt.Sprintf("wait=%d", int(soakHold.Seconds()))}},
			})
			if err == nil {
				got = client.BatchStatus{}
				err = json.Unmarshal(answer.Data, &got)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("await %s: %w", b.BatchReference, err)
		}
		s.check(b, got, since(began))
		return nil
	})
}

func (s *soakSite) batchRows(ctx context.Context) error {
	ctx = withKind(ctx, "rows of a batch as CSV")
	return s.withBatch(ctx, func(b *haBatch) error {
		_, err := s.call(ctx, func() error {
			_, err := s.api.BatchRowsCSV(ctx, s.site.String(), b.BatchReference)
			return err
		})
		return err
	})
}

// page returns a function that requests the first page of one of the Site's lists. path is the area
// of the API, billing or checkout, and then the name of the list.
func page(kind string, query map[string]string, path ...string) func(*soakSite, context.Context) error {
	return func(s *soakSite, ctx context.Context) error {
		ctx = withKind(ctx, kind)
		segments := append([]string{path[0], s.site.String()}, path[1:]...)
		if path[0] == "billing" {
			segments = append([]string{"billing", "sites", s.site.String()}, path[1:]...)
		}
		_, err := s.call(ctx, func() error {
			_, err := s.api.Do(ctx, client.Call{
				Method: http.MethodGet, Path: client.Path(segments...) + client.Query(query), Repeatable: true,
			})
			return err
		})
		return err
	}
}

// movementsSince is the length of the time whose movements listMovements reads.
const movementsSince = time.Minute

// listMovements requests a page of the latest movements.
func (s *soakSite) listMovements(ctx context.Context) error {
	from := strconv.FormatInt(time.Now().Add(-movementsSince).UnixMilli(), 10)
	return page("list movements", map[string]string{"limit": "50", "from": from}, "billing", "movements")(s, ctx)
}

// exportMovements requests the latest movements as CSV, for a shorter time.
func (s *soakSite) exportMovements(ctx context.Context) error {
	ctx = withKind(ctx, "movements as CSV")
	_, err := s.call(ctx, func() error {
		filter := client.MovementFilter{From: time.Now().Add(-movementsSince / 6).UnixMilli()}
		_, err := s.api.MovementsCSV(ctx, s.site.String(), filter)
		return err
	})
	return err
}
