package main

import (
	"context"
	"time"
)

// take removes the oldest item of one of the Site's lists, and returns it. ok is false if the list
// is empty.
func take[T any](s *soakSite, items *[]T) (first T, ok bool) {
	s.state.Lock()
	defer s.state.Unlock()
	if len(*items) == 0 {
		return first, false
	}
	first = (*items)[0]
	*items = (*items)[1:]
	return first, true
}

// give adds an item to one of the Site's lists.
func give[T any](s *soakSite, items *[]T, item T) {
	s.state.Lock()
	defer s.state.Unlock()
	*items = append(*items, item)
}

// createIntent creates a payment intent, and plans what happens to it later.
func (s *soakSite) createIntent(ctx context.Context) error {
	ctx = withKind(ctx, "create a payment intent")
	s.state.Lock()
	serial := s.payments
	s.payments++
	p := s.till.newPayment(serial)
	s.state.Unlock()
	if err := s.till.create(ctx, serial, p); err != nil {
		return err
	}
	s.count(func(c *haCounts) { c.Payments++ })
	give(s, &s.till.made, p)
	switch p.plan {
	case planPay:
		give(s, &s.payable, p)
	case planCancel:
		give(s, &s.cancellable, p)
	}
	return nil
}

// payWithin is the maximum age at which a payment intent is paid. Older ones are left to expire.
const payWithin = 5 * time.Minute

// payIntent has a customer pay the oldest payment intent that is to be paid. If there is none, it
// creates one.
func (s *soakSite) payIntent(ctx context.Context) error {
	p, ok := take(s, &s.payable)
	for ok && time.Since(p.created.from) > payWithin {
		p, ok = take(s, &s.payable)
	}
	if !ok {
		return s.createIntent(ctx)
	}
	defer give(s, &s.pending, p)
	return s.till.pay(withKind(ctx, "pay"), p)
}

// cancelIntent cancels the oldest payment intent that is to be cancelled. If there is none, it
// creates one.
func (s *soakSite) cancelIntent(ctx context.Context) error {
	p, ok := take(s, &s.cancellable)
	if !ok {
		return s.createIntent(ctx)
	}
	return s.till.cancel(mayEndLater(withKind(ctx, "cancel a payment intent"), p.created), p)
}

// awaitIntent reads the oldest paid payment intent, and asks the service to hold the answer until
// the status is final. If there is none, it creates one.
func (s *soakSite) awaitIntent(ctx context.Context) error {
	p, ok := take(s, &s.pending)
	if !ok {
		return s.createIntent(ctx)
	}
	got, err := s.till.read(withKind(ctx, "await a payment"), p, soakHold)
	if err != nil || got.State != "final" {
		give(s, &s.pending, p)
	}
	return err
}
