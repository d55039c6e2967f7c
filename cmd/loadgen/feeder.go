package main

import (
	"context"
	"errors"
	"time"

	"partnerbilling/models"
)

// feeder keeps the number of open rows constant: it submits as many rows as are settled.
type feeder struct {
	stop context.CancelFunc
	done chan error // receives the feeder's error when it ends
}

// feedInterval is the time between two submissions.
const feedInterval = 100 * time.Millisecond

// topUp submits rows to the Sites until the number of open rows reaches the level.
func (p *partners) topUp(ctx context.Context, sites []models.Site, level int) error {
	open, err := p.openRows(ctx)
	if err != nil {
		return err
	}
	return p.submitTo(ctx, sites, max(0, level-open))
}

// feed submits rows until level rows are open, and starts a feeder, which keeps that number until
// its end is called. No other goroutine may submit through p meanwhile.
func (p *partners) feed(ctx context.Context, level int) (*feeder, error) {
	if err := p.topUp(ctx, p.sites, level); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	f := &feeder{stop: stop, done: make(chan error, 1)}
	go func() {
		f.done <- every(ctx, feedInterval, func() error {
			return p.topUp(context.WithoutCancel(ctx), p.sites, level)
		})
	}()
	return f, nil
}

// end stops the feeder and returns its error.
func (f *feeder) end() error {
	f.stop()
	return <-f.done
}

// drainAt measures how many rows per second a worker settles, and adds the rate to the series. The
// rail has no latency. A feeder keeps level rows open. A warm-up of a fifth of the measured time
// comes first.
func (p *partners) drainAt(ctx context.Context, level int, measured time.Duration, to *series) error {
	load, err := p.feed(ctx, level)
	if err != nil {
		return err
	}
	if err := p.checkpoint(ctx); err != nil {
		return errors.Join(err, load.end())
	}
	w, err := p.startWorker(ctx, debitWorker(instantRail{}))
	if err != nil {
		return errors.Join(err, load.end())
	}
	rate, err := p.settledRate(ctx, measured/5, measured)
	to.add(rate)
	return errors.Join(err, load.end(), w.end())
}

// drainRest starts a worker on a rail without latency, and waits until it has settled all rows.
func (p *partners) drainRest(ctx context.Context) error {
	w, err := p.startWorker(ctx, debitWorker(instantRail{}))
	if err != nil {
		return err
	}
	return errors.Join(p.awaitSettled(ctx), w.end())
}
