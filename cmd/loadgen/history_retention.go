package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// historySubmitters is the number of goroutines that submit small batches at the same time.
	historySubmitters = 4
	// retentionWithin bounds the time of dropPartition.
	retentionWithin = time.Minute
)

// submission is the time of one submitted batch, from the request to its answer.
type submission struct{ began, ended time.Time }

// measureRetention drops the partition with the rows of the oldest week, as retention does, while
// partners submit. It returns the measured series, and the ratios with targets.
func (h *history) measureRetention(ctx context.Context) ([]*series, []ratio, error) {
	side := h.with
	rows := &series{Name: "retention: rows of the dropped partition", Unit: "rows"}
	drop := &series{Name: "retention: drop of the partition", Unit: "ms"}
	before := &series{Name: "slowest submission before retention", Unit: "ms"}
	during := &series{Name: "slowest submission during the drop", Unit: "ms"}

	n, err := side.oldestPartition(ctx)
	if err != nil {
		return nil, nil, err
	}
	rows.add(n)
	load := side.keepSubmitting(ctx)
	defer func() { _ = load.end() }() // after an error
	if err := wait(ctx, h.measured); err != nil {
		return nil, nil, err
	}
	dropping, dropped, err := side.dropPartition(ctx)
	if err != nil {
		return nil, nil, err
	}
	drop.add(dropped.Sub(dropping).Seconds() * 1000)
	if err := errors.Join(wait(ctx, h.measured/5), load.end()); err != nil {
		return nil, nil, err
	}
	before.add(load.slowest(time.Time{}, dropping))
	during.add(load.slowest(dropping, dropped))
	if err := side.drainRest(ctx); err != nil {
		return nil, nil, err
	}
	return []*series{rows, drop, before, during}, []ratio{
		{Name: drop.Name, Value: drop.max(), Target: -1000, Unit: "ms"},
		{Name: during.Name, Value: during.max(), Target: -1000, Unit: "ms"},
	}, nil
}

// oldestPartition returns the approximate number of rows in the oldest partition of batch rows.
func (b *bench) oldestPartition(ctx context.Context) (rows float64, err error) {
	const query = `
SELECT reltuples FROM partitions JOIN pg_class c ON c.oid = name::regclass
WHERE parent = 'batch_rows' ORDER BY lowest LIMIT 1`
	err = b.store.DB().NewRaw(query).Scan(ctx, &rows)
	return rows, err
}

// dropPartition drops a partition that is past its retention, and returns when the drop began and
// ended. While another database transaction locks the table, it tries again every second.
func (b *bench) dropPartition(ctx context.Context) (began, ended time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, retentionWithin)
	defer cancel()
	err = await(ctx, time.Second, func() (bool, error) {
		began = time.Now()
		n, err := b.store.DropOldPartitions(ctx, 1)
		ended = time.Now()
		return n > 0, err
	})
	if err != nil {
		err = fmt.Errorf("no partition was dropped: %w", err)
	}
	return began, ended, err
}

// submitters are goroutines that submit small batches until end is called.
type submitters struct {
	stop  context.CancelFunc
	group *errgroup.Group

	mu   sync.Mutex
	sent []submission // answered ones
}

// keepSubmitting starts historySubmitters goroutines. Each submits its next batch when the last one
// is answered.
func (s *historySide) keepSubmitting(ctx context.Context) *submitters {
	const rows = 10
	ctx, stop := context.WithCancel(ctx)
	load := &submitters{stop: stop, group: &errgroup.Group{}}
	for i := range historySubmitters {
		client := s.clients[i%len(s.clients)]
		load.group.Go(func() error {
			for n := 0; ctx.Err() == nil; n++ {
				body := s.batchBody(fmt.Sprintf("retention %d of %d", n, i), rows)
				began := time.Now()
				if _, err := client.submit(context.WithoutCancel(ctx), body); err != nil {
					return err
				}
				load.add(submission{began, time.Now()})
			}
			return nil
		})
	}
	return load
}

func (l *submitters) add(s submission) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, s)
}

// end stops the submitters, waits for their last answers, and returns their first error.
func (l *submitters) end() error {
	l.stop()
	return l.group.Wait()
}

// slowest returns the longest latency of the submissions that were running at some time between
// from and to. The result is in ms. The submitters must have ended.
func (l *submitters) slowest(from, to time.Time) float64 {
	var slowest time.Duration
	for _, s := range l.sent {
		if s.began.Before(to) && s.ended.After(from) {
			slowest = max(slowest, s.ended.Sub(s.began))
		}
	}
	return slowest.Seconds() * 1000
}
