package main

import (
	"context"
	"strings"
)

// statementLibrary is the extension of Postgres that counts the blocks that each statement reads.
const statementLibrary = "pg_stat_statements"

// readerClaim is a statement that finds, claims or counts unfinished work.
type readerClaim struct {
	name  string
	text  string // a part of the statement's SQL that no other statement has, without constants and comments
	byRow bool   // blocks are measured per row: one call serves several callers
}

// readerClaims lists the statements whose blocks a long transaction (the reader) must not multiply.
var readerClaims = []readerClaim{
	{name: "look for due tasks", text: "SELECT FROM outbox\n    WHERE queue ="},
	{name: "claim due tasks", text: "WITH RECURSIVE leader AS MATERIALIZED"},
	{name: "claim named tasks", text: "queue_capacity AS MATERIALIZED"},
	{name: "reclaim lost tasks", text: "x.queue = q.queue AND x.redispatch_after <= statement_timestamp()"},
	{name: "reclaim early retries", text: "SELECT id FROM outbox WHERE dispatched_at IS NOT NULL AND kind ="},
	{name: "submit a batch", text: "INSERT INTO batches (site_id, id, organisation_id, batch_reference"},
	{name: "claim rows", text: "AS earlier_epoch"},
	{name: "claim a transaction", text: "AS was_in_doubt"},
	{name: "claim webhooks", text: "AS task_leased", byRow: true},
	{name: "read the load of endpoints", text: "p.requested_at AS parked_at, p.event_id AS parked_event", byRow: true},
	{name: "lease webhook slots", text: "requested_at, task_id, token,\n    number, url, until)", byRow: true},
	{name: "list endpoints with parked events", text: "WITH RECURSIVE parked (organisation_id, site_id)"},
}

// unit returns the unit of blocks.
func (c readerClaim) unit() string {
	if c.byRow {
		return "blocks a row"
	}
	return "blocks a call"
}

// readerStatement counts the calls of a statement so far, and their rows and blocks.
type readerStatement struct{ Calls, Rows, Blocks int64 }

// blocks returns the blocks per call or row between two readings. It reports false if there was no
// call or row.
func (c readerClaim) blocks(before, after readerStatement) (float64, bool) {
	n := after.Calls - before.Calls
	if c.byRow {
		n = after.Rows - before.Rows
	}
	return float64(after.Blocks-before.Blocks) / float64(n), n > 0
}

// readerWork counts the work that was done so far.
type readerWork struct {
	statements       []readerStatement // by index of readerClaims
	rows, deliveries int               // settled rows; recorded webhook attempts
}

// readWork reads the counts from the database.
func (r *reader) readWork(ctx context.Context) (w readerWork, err error) {
	var all []struct {
		Query string
		readerStatement
	}
	err = r.store.DB().NewRaw(`
SELECT s.query, s.calls, s.rows, s.shared_blks_hit + s.shared_blks_read AS blocks
FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database()`).Scan(ctx, &all)
	if err != nil {
		return w, err
	}
	w.statements = make([]readerStatement, len(readerClaims))
	for i, c := range readerClaims {
		for _, s := range all {
			if strings.Contains(s.Query, c.text) {
				w.statements[i].Calls += s.Calls
				w.statements[i].Rows += s.Rows
				w.statements[i].Blocks += s.Blocks
			}
		}
	}
	if _, w.rows, err = r.counts(ctx); err != nil {
		return w, err
	}
	err = r.store.DB().NewRaw("SELECT count(*) FROM webhook_attempts").Scan(ctx, &w.deliveries)
	return w, err
}
