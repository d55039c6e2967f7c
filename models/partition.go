package models

import "time"

// partitionedTable is a table that is partitioned by the time in its ids. SQL functions of the
// migrations make and drop its partitions.
type partitionedTable struct {
	name   string
	key    string // the column by which it is partitioned
	period string // the length of a partition: "week" or "month"
	// retention is how long rows are kept. Nil: the partitions go with those of another table.
	retention func(Retention) time.Duration
	// moves is the maximum number of rows that are moved out of a partition before it is dropped,
	// because retention keeps them. With more such rows, the partition stays, and its other rows
	// are removed one by one.
	moves int
}

// partitionedTables lists the partitioned tables. Periods are long, so that partitions are few: a
// statement may lock every one. Payment intents and the ledger are not partitioned: GROWTH.md says
// why.
var partitionedTables = []partitionedTable{
	{
		name: "batch_rows", key: "batch_id", period: "week",
		retention: func(Retention) time.Duration { return BatchRetention },
	},
	{
		name: "webhook_events", key: "id", period: "month", moves: maxMovedRows,
		retention: func(r Retention) time.Duration { return r.Webhooks },
	},
	{name: "webhook_attempts", key: "event_id", period: "month"},
}

// minPartitionAge is the shortest age at which a partition is dropped.
var minPartitionAge = min(BatchRetention, MinRetention.Webhooks)

const (
	// partitionsAhead is the number of periods ahead for which partitions are made.
	partitionsAhead = 2
	// minPartitionsAhead is the number of periods ahead up to which a missing partition raises an
	// alert.
	minPartitionsAhead = 1
	// maxMovedRows bounds the rows that move between partitions under an exclusive lock.
	maxMovedRows = 10_000
	// partitionLockTimeout bounds how long the change of a partition waits for its locks. While it
	// waits, all later statements on the table wait behind it.
	partitionLockTimeout = 500 * time.Millisecond
)
