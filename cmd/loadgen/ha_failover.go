package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"partnerbilling/api/client"
)

// promotion is what one failover was like.
type promotion struct {
	Loss     bool          `json:"loss"`
	Epoch    string        `json:"epoch"`    // of the new primary
	Promoted time.Duration `json:"promoted"` // from the death of the old primary to the readiness of the new one
	Rebuilt  time.Duration `json:"rebuilt"`  // how long it took to make the old primary the standby
	Answered time.Duration `json:"answered"` // from the readiness to the first good answer to a request that writes
}

// answerBound is how soon after a new primary's readiness the service answers again.
const answerBound = 5 * time.Second

// failOver kills the primary under load, promotes the standby, and rebuilds the old primary as the new standby. With loss, the
// standby has lagged before.
func (h *ha) failOver(ctx context.Context, loss bool) (promotion, error) {
	done := promotion{Loss: loss}
	pair, losses := h.fleet.pair, h.fleet.losses
	if !loss {
		if err := pair.Synchronous(ctx); err != nil {
			return done, fmt.Errorf("replicate synchronously: %w", err)
		}
	}
	if err := wait(ctx, between(h.random, dwell/5, dwell*4/5)); err != nil {
		return done, err
	}
	if loss {
		now := time.Now()
		if err := pair.CatchUp(ctx); err != nil {
			return done, fmt.Errorf("let the standby catch up: %w", err)
		}
		losses.begin(now)
		if err := pair.Detach(ctx); err != nil {
			return done, fmt.Errorf("let the standby lag: %w", err)
		}
		if err := wait(ctx, between(h.random, 300*time.Millisecond, 1500*time.Millisecond)); err != nil {
			return done, err
		}
	}
	died := time.Now()
	pair.KillPrimary()
	if err := wait(ctx, between(h.random, 0, time.Second)); err != nil { // until the failure is noticed
		return done, err
	}
	if err := pair.Promote(ctx); err != nil {
		return done, fmt.Errorf("promote: %w", err)
	}
	h.fleet.redirect()
	ready := time.Now()
	done.Promoted = ready.Sub(died)
	if loss {
		losses.end(ready)
	}
	err := h.fleet.probe(ctx)
	done.Answered = time.Since(ready)
	if err != nil {
		return done, err
	}
	if done.Epoch, err = pair.Epoch(ctx); err != nil {
		return done, err
	}
	began := time.Now()
	if err := pair.Rejoin(ctx); err != nil {
		return done, fmt.Errorf("rebuild the old primary as the standby: %w", err)
	}
	done.Rebuilt = time.Since(began)
	return done, nil
}

// probe creates a payment intent, which nobody pays, as soon as that works.
func (f *haFleet) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := f.prober.api.CreatePaymentIntent(ctx, f.prober.site, client.NewPaymentIntent{Amount: 1, QRCodeFormat: "text"}, "")
		if err == nil {
			return nil
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return errors.Join(fmt.Errorf("the service does not answer after a promotion: %w", err), ctx.Err())
		}
	}
}
