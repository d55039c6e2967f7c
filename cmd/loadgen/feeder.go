package main

import (
	"context"
	"time"

	"partnerbilling/models"
)

// feeder keeps a backlog at its level by submitting what has been settled anew.
type feeder struct {
	stop context.CancelFunc
	done chan error
}

// feedEvery is how often it looks.
const feedEvery = 100 * time.Millisecond

// topUp submits to the Sites what is missing to that many rows that are not settled.
func (p *partners) topUp(ctx context.Context, sites []models.Site, level int) error {
	open, err := p.openRows(ctx)
	if err != nil {
		return err
	}
	return p.submitTo(ctx, sites, max(0, level-open))
}

// feed holds the backlog at the level until end. Nobody else may submit meanwhile.
func (p *partners) feed(ctx context.Context, level int) (*feeder, error) {
	if err := p.topUp(ctx, p.sites, level); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	f := &feeder{stop: stop, done: make(chan error, 1)}
	go func() {
		for {
			if wait(ctx, feedEvery) != nil {
				f.done <- nil
				return
			}
			if err := p.topUp(context.WithoutCancel(ctx), p.sites, level); err != nil {
				f.done <- err
				return
			}
		}
	}()
	return f, nil
}

func (f *feeder) end() error {
	f.stop()
	return <-f.done
}
