package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"

	"partnerbilling/models"
	"partnerbilling/queue"
)

// referenceConcurrency is the number of tasks or chunks that a reference works on at the same time.
// A worker has as many slots for debits.
var referenceConcurrency = queue.DefaultSlots(models.QueueDebits)

// asynqNoop returns the rate at which plain Asynq runs tasks that do nothing, in tasks per second.
func (b *bench) asynqNoop(ctx context.Context, tasks int) (float64, error) {
	return b.asynq(ctx, tasks, func(context.Context, int) error { return nil })
}

// asynqUpdate returns the rate at which plain Asynq runs tasks that update one row each, in tasks
// per second.
func (b *bench) asynqUpdate(ctx context.Context, tasks int) (float64, error) {
	if err := b.exec(ctx,
		"CREATE TABLE IF NOT EXISTS reference_rows (id int PRIMARY KEY, settled_at bigint)"); err != nil {
		return 0, err
	}
	if err := b.exec(ctx, "TRUNCATE reference_rows"); err != nil {
		return 0, err
	}
	if err := b.exec(ctx, "INSERT INTO reference_rows SELECT generate_series(0, $1)", tasks); err != nil {
		return 0, err
	}
	return b.asynq(ctx, tasks, func(ctx context.Context, id int) error {
		return b.exec(ctx, "UPDATE reference_rows SET settled_at = 1 WHERE id = $1", id)
	})
}

// asynq enqueues tasks, and returns the rate at which a server of Asynq runs them, in tasks per
// second. Each task calls do with its number, from 0.
func (b *bench) asynq(ctx context.Context, tasks int, do func(context.Context, int) error) (float64, error) {
	const queueName = "reference"
	client := asynq.NewClientFromRedisClient(b.redis)
	enqueue, enqueueCtx := errgroup.WithContext(ctx)
	enqueue.SetLimit(8)
	for i := range tasks {
		enqueue.Go(func() error {
			task := asynq.NewTask("reference", fmt.Append(nil, i))
			_, err := client.EnqueueContext(enqueueCtx, task, asynq.Queue(queueName))
			return err
		})
	}
	if err := enqueue.Wait(); err != nil {
		return 0, err
	}
	server := asynq.NewServerFromRedisClient(b.redis, asynq.Config{
		Concurrency: referenceConcurrency, Queues: map[string]int{queueName: 1},
		TaskCheckInterval: 100 * time.Millisecond, LogLevel: asynq.FatalLevel,
	})
	var left atomic.Int64
	left.Store(int64(tasks))
	done := make(chan struct{})
	began := time.Now()
	if err := server.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		var i int
		if _, err := fmt.Sscan(string(t.Payload()), &i); err != nil {
			return err
		}
		if err := do(ctx, i); err != nil {
			return err
		}
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	})); err != nil {
		return 0, err
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
	took := time.Since(began)
	server.Shutdown()
	return float64(tasks) / took.Seconds(), ctx.Err()
}

// These statements are the minimum that settles a chunk of rows on the tables of the service:
// bareClaim claims the rows, and the others record their outcomes in one database transaction.
const (
	bareClaim = `
UPDATE batch_rows SET state = 'inProgress', lease_token = $4, lease_until = clock_timestamp() + interval '15 s',
	attempts = attempts + 1
WHERE site_id = $1 AND batch_id = $2 AND row_index BETWEEN $3 AND $3 + $5::int - 1 AND state = 'pending'
	RETURNING row_index, amount`
	bareFinish = `
UPDATE batch_rows r SET state = 'settled', outcome = v.outcome::row_outcome, settled_at = $6, lease_token = NULL,
	lease_until = NULL
FROM unnest($4::int[], $5::text[]) AS v (i, outcome)
WHERE site_id = $1 AND batch_id = $2 AND row_index = v.i AND lease_token = $3`
	bareLedger = `
INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference, row_reference,
	customer_reference)
SELECT 'r1_' || $2::uuid || v.i, $1, $5, v.amount, 'AUD', 'a batch', 'a row', 'a customer'
FROM unnest($3::int[], $4::bigint[]) AS v (i, amount)`
	bareCount = `
UPDATE batches SET settled_count = settled_count + $5::int, succeeded_count = succeeded_count + $5::int,
    succeeded_amount = succeeded_amount + $3,
    state = CASE WHEN settled_count + $5::int = row_count THEN 'settled'::batch_state ELSE state END,
    settled_at = CASE WHEN settled_count + $5::int = row_count THEN $4::bigint END
WHERE site_id = $1 AND id = $2`
)

// bareChunk is a chunk of the backlog: models.ChunkRows consecutive rows of a batch.
type bareChunk struct {
	site  models.SiteID
	batch models.BatchID
	first int // index of the first row
}

// bareSQL returns the rate at which the bare statements settle a backlog, in rows per second.
func (d *drain) bareSQL(ctx context.Context) (float64, error) {
	if err := d.submit(ctx, d.rows); err != nil {
		return 0, err
	}
	chunks, err := d.openChunks(ctx)
	if err != nil {
		return 0, err
	}
	work := make(chan bareChunk, len(chunks))
	for _, c := range chunks {
		work <- c
	}
	close(work)
	group, groupCtx := errgroup.WithContext(ctx)
	began := time.Now()
	for range referenceConcurrency {
		group.Go(func() error {
			for c := range work {
				if err := d.settleBare(groupCtx, c); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = group.Wait()
	took := time.Since(began)
	if err == nil {
		err = d.exec(ctx, "DELETE FROM outbox")
	}
	return float64(len(chunks)*models.ChunkRows) / took.Seconds(), err
}

// openChunks returns the chunks of all tasks in the outbox.
func (d *drain) openChunks(ctx context.Context) ([]bareChunk, error) {
	rows, err := d.store.DB().DB.QueryContext(ctx, "SELECT site_id, subject_id, first_row FROM outbox ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var chunks []bareChunk
	for rows.Next() {
		var c bareChunk
		if err := rows.Scan(&c.site, &c.batch, &c.first); err != nil {
			return nil, err
		}
		chunks = append(chunks, c)
	}
	return chunks, rows.Err()
}

// settleBare settles a chunk with the bare statements.
func (d *drain) settleBare(ctx context.Context, c bareChunk) error {
	db, lease, now := d.store.DB().DB, models.NewLeaseToken(), time.Now().UnixMilli()
	rows, err := db.QueryContext(ctx, bareClaim, c.site, c.batch, c.first, lease, models.ChunkRows)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var index []int32
	var outcome []string
	var amount []int64
	var sum int64
	for rows.Next() {
		var i int32
		var a int64
		if err := rows.Scan(&i, &a); err != nil {
			return err
		}
		index, outcome, amount, sum = append(index, i), append(outcome, "succeeded"), append(amount, a), sum+a
	}
	if err := rows.Err(); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range []struct {
		query string
		args  []any
	}{
		{bareFinish, []any{c.site, c.batch, lease, index, outcome, now}},
		{bareLedger, []any{c.site, c.batch, index, amount, now}},
		{bareCount, []any{c.site, c.batch, sum, now, models.ChunkRows}},
	} {
		if _, err := tx.ExecContext(ctx, statement.query, statement.args...); err != nil {
			return err
		}
	}
	return tx.Commit()
}
