package main

import (
	"context"
	"time"
)

// take removes the oldest item of a list and returns it. ok is false if the list is empty.
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

// give adds an item to a list.
func give[T any](s *soakSite, items *[]T, item T) {
	s.state.Lock()
	defer s.state.Unlock()
	*items = append(*items, item)
}

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
		give(s, &s.doomed, p)
	}
	return nil
}

// payWithin is how soon after its creation a payment intent is paid. Later the customer has left,
// and the intent expires.
const payWithin = 5 * time.Minute

// payIntent has a customer pay the oldest payment intent. Without any it creates one.
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

func (s *soakSite) cancelIntent(ctx context.Context) error {
	p, ok := take(s, &s.doomed)
	if !ok {
		return s.createIntent(ctx)
	}
	return s.till.cancel(mayEndLater(withKind(ctx, "cancel a payment intent"), p.created), p)
}

// awaitIntent reads a payment, and asks the service to hold the answer until its status is final.
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
