package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"partnerbilling/api/client"
)

// promotion is the result of one failover, of the primary PostgreSQL or of a master of Redis.
// Durations are nanoseconds in JSON.
type promotion struct {
	// Loss is whether the standby lagged, so that acknowledged commits were lost.
	Loss bool `json:"loss"`
	// Epoch is the epoch of the new primary's database. It is empty for Redis and for a deployment.
	Epoch string `json:"epoch"`
	// Promoted is the time from the kill of the old primary until the new one is ready. For a
	// deployment, it is the run time of the script that fails over.
	Promoted time.Duration `json:"promoted"`
	// Rebuilt is the time until the killed server is the new standby. It begins after the first
	// answer; for Redis, at the promotion; for a deployment, after the failover of Redis.
	Rebuilt time.Duration `json:"rebuilt"`
	// Answered is the time from the readiness of the new primary to the first successful answer to
	// a write. For Redis, it ends when a batch of the outage is settled.
	Answered time.Duration `json:"answered"`
	// Redis is the time from the kill of a deployment's Redis master to the next master. It is 0
	// without a deployment.
	Redis time.Duration `json:"redis,omitempty"`
}

// maxAnswerDelay is the maximum time from the readiness of a new primary to the first successful
// answer of the service.
const maxAnswerDelay = 5 * time.Second

// failOver kills the primary PostgreSQL under load, promotes the standby, and rebuilds the old
// primary as the new standby. If loss is set, the standby lags before the kill, so that commits are
// lost.
func (h *ha) failOver(ctx context.Context, loss bool) (promotion, error) {
	if h.fleet.deployed != nil {
		return h.failOverDeployment(ctx)
	}
	done := promotion{Loss: loss}
	pair, losses := h.fleet.pair, h.fleet.losses
	if !loss {
		if err := pair.Synchronous(ctx); err != nil {
			return done, fmt.Errorf("replicate synchronously: %w", err)
		}
	}
	if err := wait(ctx, between(h.random, promotionInterval/5, promotionInterval*4/5)); err != nil {
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
		if err := h.fleet.awaitBatch(ctx); err != nil {
			return done, fmt.Errorf("wait for a batch to lose: %w", err)
		}
		if err := wait(ctx, between(h.random, 300*time.Millisecond, 1500*time.Millisecond)); err != nil {
			return done, err
		}
	}
	if err := h.replacePrimary(ctx, &done); err != nil {
		return done, err
	}
	return done, h.rebuildStandby(ctx, &done)
}

// replacePrimary kills the primary, promotes the standby, and waits for the first successful answer
// of the service.
func (h *ha) replacePrimary(ctx context.Context, done *promotion) (err error) {
	pair, died := h.fleet.pair, time.Now()
	pair.KillPrimary()
	// Real systems need some time to detect the failure.
	if err := wait(ctx, between(h.random, 0, time.Second)); err != nil {
		return err
	}
	if err := pair.Promote(ctx); err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	h.fleet.redirect()
	ready := time.Now()
	done.Promoted = ready.Sub(died)
	if done.Loss {
		h.fleet.losses.end(ready)
	}
	err = h.fleet.probe(ctx)
	done.Answered = time.Since(ready)
	if err != nil {
		return err
	}
	done.Epoch, err = pair.Epoch(ctx)
	return err
}

// rebuildStandby rebuilds the killed primary as the standby of the new primary.
func (h *ha) rebuildStandby(ctx context.Context, done *promotion) error {
	began := time.Now()
	if err := h.fleet.pair.Rejoin(ctx); err != nil {
		return fmt.Errorf("rebuild the old primary as the standby: %w", err)
	}
	done.Rebuilt = time.Since(began)
	return nil
}

// maxBatchWait bounds the time of awaitBatch, since no further batch comes at the end of a run.
const maxBatchWait = 10 * time.Second

// awaitBatch waits until a partner has submitted a new batch, for up to maxBatchWait.
func (f *haFleet) awaitBatch(ctx context.Context) error {
	const count = "SELECT count(*) FROM batches"
	var before int
	if err := f.store.DB().NewRaw(count).Scan(ctx, &before); err != nil {
		return err
	}
	for end := time.Now().Add(maxBatchWait); time.Now().Before(end); {
		var n int
		if err := f.store.DB().NewRaw(count).Scan(ctx, &n); err != nil || n > before {
			return err
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// probe tries to create a payment intent until that succeeds, for up to a minute.
func (f *haFleet) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		intent := client.NewPaymentIntent{Amount: 1, QRCodeFormat: "text"}
		_, err := f.prober.api.CreatePaymentIntent(ctx, f.prober.site, intent, "")
		if err == nil {
			return nil
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return errors.Join(fmt.Errorf("the service does not answer after a promotion: %w", err), ctx.Err())
		}
	}
}
