package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"golang.org/x/sync/errgroup"

	"partnerbilling/models"
)

const (
	week = 7 * 24 * time.Hour
	// historyWeeks is the number of weeks of history before the present week. The oldest one is
	// past the retention of batches.
	historyWeeks = int((models.BatchRetention+week-1)/week) + 1
	// historyRowsPerPayment is the number of batch rows in the history for each payment.
	historyRowsPerPayment = 10
	// historyWriters is the number of weeks that are written at the same time, and later the number
	// of tables that are indexed at the same time.
	historyWriters = 2
)

// historyPartitions makes the partitions for the week that begins at $1, in Unix milliseconds.
// Partitions that exist already stay.
const historyPartitions = `
SELECT make_partition(t.name, t.period, date_trunc(t.period, to_timestamp($1::bigint / 1000), 'UTC'), 0)
FROM (VALUES ('batch_rows', 'week'), ('webhook_events', 'month'), ('webhook_attempts', 'month')) AS t (name, period)`

// historyWeek lists the statements that write one week of history: settled batches of 1000 rows
// with their ledger entries, and payments with their ledger entries and delivered events. Their
// times are spread over the week. They belong to the Sites in rotation.
//
// $1 is an array of Site ids, as text. $2 is the beginning of the week in Unix milliseconds. $3 is
// the number of batches or payments.
var historyWeek = []struct {
	query    string
	payments bool // $3 counts payments
}{
	{query: `
WITH b AS (
    INSERT INTO batches (site_id, id, organisation_id, batch_reference, state, row_count, settled_count,
                         succeeded_count, total_amount, succeeded_amount, currency, submitted_at, settle_by, settled_at,
                         fingerprint, trace_id, generation, epoch)
    SELECT s.id, (lpad(to_hex(t.ms), 12, '0') || '70008' || lpad(to_hex(n), 15, '0'))::uuid, s.organisation_id,
           format('history %s of %s', n, $2::bigint), 'settled', 1000, 1000, 1000, 100000, 100000, s.currency, t.ms,
           t.ms + 86400000, t.ms + 1000, sha256(n::text::bytea), md5(n::text), 1, 1
    FROM generate_series(1, $3::bigint) AS n
    CROSS JOIN LATERAL (SELECT $2::bigint + (n - 1) * 604800000 / $3::bigint) AS t (ms)
    JOIN sites s ON s.id = ($1::text[])[1 + n % cardinality($1::text[])]::uuid
    RETURNING site_id, batch_reference, generation
)
INSERT INTO batch_references (site_id, batch_reference, generation) SELECT * FROM b`},
	{query: `
INSERT INTO batch_rows (site_id, batch_id, row_index, attempts, link_id, amount, settled_at, state, outcome,
                        customer_reference, row_reference)
SELECT b.site_id, b.id, i, 1, b.id, 100, b.settled_at, 'settled', 'succeeded', (i % 100)::text, i::text
FROM (
    SELECT * FROM batches
    WHERE site_id = ANY ($1::text[]::uuid[]) AND batch_reference LIKE format('history %% of %s', $2::bigint)
    ORDER BY id LIMIT $3::bigint) AS b CROSS JOIN generate_series(0, 999) AS i`},
	{query: `
INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference, row_reference,
                            customer_reference, link_id)
SELECT 'r1_' || md5(b.id::text) || md5(i::text), b.site_id, b.settled_at, 100, b.currency, b.batch_reference, i::text,
       (i % 100)::text, b.id
FROM (
    SELECT * FROM batches
    WHERE site_id = ANY ($1::text[]::uuid[]) AND batch_reference LIKE format('history %% of %s', $2::bigint)
    ORDER BY id LIMIT $3::bigint) AS b CROSS JOIN generate_series(0, 999) AS i`},
	{payments: true, query: `
WITH p AS (
    INSERT INTO payment_intents (site_id, id, organisation_id, epoch, code, state, transaction_status, amount, currency,
                                 order_id, qr_code_format, created_at, expires_at, final_at, trace_id, transaction_id,
                                 party, amount_charged, started_at, attempts)
    SELECT s.id, (lpad(to_hex(t.ms), 12, '0') || '70009' || lpad(to_hex(n), 15, '0'))::uuid, s.organisation_id, 1,
           md5(format('%s of %s', n, $2::bigint)), 'final', 'Settled', 1250, s.currency, 'order ' || n, 'text', t.ms,
           t.ms + 600000, t.ms + 2000, md5(n::text), gen_random_uuid(), 'sealed', 1250, t.ms + 1000, 1
    FROM generate_series(1, $3::bigint) AS n
    CROSS JOIN LATERAL (SELECT $2::bigint + (n - 1) * 604800000 / $3::bigint) AS t (ms)
    JOIN sites s ON s.id = ($1::text[])[1 + n % cardinality($1::text[])]::uuid
    RETURNING *
), ledger AS (
    INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, payment_intent_id, order_id)
    SELECT payment_rail_key(id), site_id, final_at, amount_charged, currency, id, order_id FROM p
), event AS (
    INSERT INTO webhook_events (organisation_id, id, site_id, type, payment_intent_id, transaction_status, status,
                                attempts, created_at, requested_at, delivered_at, trace_id, body)
    SELECT organisation_id, id, site_id, 'transactionStatus', id, 'Settled', 'delivered', 1, final_at, final_at,
           final_at + 5, trace_id, convert_to(repeat('{"transactionStatus":"Settled"}', 10), 'UTF8')
    FROM p
)
INSERT INTO webhook_attempts (organisation_id, event_id, number, endpoint_site_id, started_at, duration_ms,
                              status_code, url)
SELECT organisation_id, id, 1, site_id, final_at, 5, 200, 'https://example.com/webhooks' FROM p`},
}

// historyTables lists the large tables of the history. Their indexes are built after the rows are
// written.
var historyTables = []string{"batch_rows", "ledger_entries", "payment_intents", "webhook_events", "webhook_attempts"}

// writeHistory writes the rows that settled batches and payments leave behind, spread over
// historyWeeks. rows is the total number of batch rows.
func (s *historySide) writeHistory(ctx context.Context, rows int) error {
	now, err := s.store.Now(ctx)
	if err != nil {
		return err
	}
	monday := now.Time().Truncate(week) // the zero time is a Monday
	sites := make([]string, len(s.sites))
	for i, site := range s.sites {
		sites[i] = uuid.UUID(site.ID).String()
	}
	for n := range historyWeeks {
		if err := s.exec(ctx, historyPartitions, monday.Add(-week*time.Duration(n+1)).UnixMilli()); err != nil {
			return err
		}
	}
	var build [][]string
	err = s.inBulk(ctx, func(ctx context.Context, tx bun.Tx) error {
		for _, table := range historyTables {
			drop, create, err := indexesOf(ctx, tx, table)
			if err != nil {
				return err
			}
			build = append(build, create)
			if err := execAll(ctx, tx.Tx, drop); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	batches := max(1, rows/models.MaxBatchRows/historyWeeks) // of a week
	oldest := monday.Add(-week * time.Duration(historyWeeks))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(historyWriters)
	for n := range historyWeeks {
		begins := monday.Add(-week * time.Duration(n+1)).UnixMilli()
		group.Go(func() error { return s.writeWeek(groupCtx, sites, begins, batches) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	// Retention removes batches one by one when they are old enough, and their rows later with the
	// partition. So the oldest week has rows, but no batches.
	err = s.exec(ctx, "DELETE FROM batches WHERE id < id_at(to_timestamp($1::bigint / 1000))",
		oldest.Add(week).UnixMilli())
	if err != nil {
		return err
	}
	return s.buildIndexes(ctx, build)
}

// writeWeek writes one week of history in a database transaction.
func (s *historySide) writeWeek(ctx context.Context, sites []string, begins int64, batches int) error {
	return s.inBulk(ctx, func(ctx context.Context, tx bun.Tx) error {
		for _, part := range historyWeek {
			n := batches
			if part.payments {
				n = batches * models.MaxBatchRows / historyRowsPerPayment
			}
			if _, err := tx.Tx.ExecContext(ctx, part.query, sites, begins, n); err != nil {
				return fmt.Errorf("the week of %d: %w", begins, err)
			}
		}
		return nil
	})
}

// buildIndexes executes the statements that build indexes. Each element of build has those of one
// table. The statements of a table run one after another; historyWriters tables run concurrently.
func (s *historySide) buildIndexes(ctx context.Context, build [][]string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(historyWriters)
	for _, create := range build {
		group.Go(func() error {
			return s.inBulk(ctx, func(ctx context.Context, tx bun.Tx) error { return execAll(ctx, tx.Tx, create) })
		})
	}
	return group.Wait()
}

// inBulk runs do in a database transaction with bulkSettings.
func (b *bench) inBulk(ctx context.Context, do func(ctx context.Context, tx bun.Tx) error) error {
	return b.store.DB().RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if err := execAll(ctx, tx.Tx, bulkSettings); err != nil {
			return err
		}
		return do(ctx, tx)
	})
}
