package models

import (
	"context"
	_ "embed" // statements
	"fmt"
	"time"

	"github.com/google/uuid"

	"partnerbilling/models/postgres"
)

var (
	//go:embed partition_missing.sql
	missingPartitionsText string
	missingPartitionsSQL  = postgres.SQL(missingPartitionsText)

	makePartitionSQL = postgres.SQL(`SELECT make_partition(:table, :period, :begins, :most)`)
	// oldPartitionsSQL selects the partitions that began longer ago than :age, the retention in
	// milliseconds, by server time. kept is what retention keeps of a partition that also ended
	// that long ago; see the SQL function kept_in_partition.
	oldPartitionsSQL = postgres.SQL(`
SELECT name, lowest, beyond, beyond <= old.id AS ended, CASE WHEN beyond <= old.id THEN
    kept_in_partition(:table, name, (SELECT now FROM service_now) - :age::bigint, :most) ELSE 0 END AS kept
FROM partitions, (SELECT id_at(statement_timestamp() - :age::bigint * interval '1 ms') AS id) old
WHERE parent = :table AND lowest < old.id ORDER BY lowest`)
	dropPartitionSQL = postgres.SQL(
		`SELECT drop_partition(:table, :partition, (SELECT now FROM service_now) - :age::bigint, :most)`)

	// strayIDsSQL tells whether the default partition holds ids that belong elsewhere. Its ids
	// should be older than every other partition, or older than :age milliseconds.
	strayIDsSQL = `
SELECT EXISTS (SELECT FROM %s_default WHERE %s >= (
    SELECT greatest(lowest, id_at(statement_timestamp() - :age::bigint * interval '1 ms'))
    FROM partitions WHERE parent = '%s' ORDER BY lowest LIMIT 1))`
	partitionAlertSQL = postgres.SQL(`
WITH missing AS (
    SELECT subject, detail FROM unnest(:subjects::text[], :details::text[]) AS m (subject, detail)
), raised AS MATERIALIZED (
    SELECT raise_alert('partitionsMissing', subject, NULL, NULL, detail, '') FROM missing
), closed AS (
    UPDATE alerts SET closed_at = svc_now()
    WHERE kind = 'partitionsMissing' AND closed_at IS NULL AND subject <> ALL (:subjects::text[])
)
SELECT count(*) FROM raised`)
)

// MakePartitions makes the partitions of the present period and of the next ones. It skips a table
// that a long transaction or a dump locks: a later call makes up for it. It raises an alert for
// each table that lacks a partition which is soon needed, and for each default partition with ids
// that belong elsewhere. It closes the alerts of this kind that no longer apply.
func (s *Store) MakePartitions(ctx context.Context) error {
	missing, err := s.missingPartitions(ctx)
	if err != nil {
		return err
	}
	for _, m := range missing {
		_, err := s.changePartition(ctx, makePartitionSQL, postgres.Args{
			"table": m.Parent, "period": m.Period, "begins": m.Begins, "most": maxMovedRows,
		})
		if err != nil {
			return wrap("make a partition of "+m.Parent, err)
		}
	}
	return wrap("alert of partitions", s.alertPartitions(ctx))
}

// missingPartition is a partition that should exist and does not.
type missingPartition struct {
	Parent, Period string    // the table, and the length of its partitions: "week" or "month"
	Begins         time.Time // where the partition's period begins
	Ahead          int       // periods after the present one
}

func (s *Store) missingPartitions(ctx context.Context) (missing []missingPartition, err error) {
	tables, periods := make([]string, len(partitionedTables)), make([]string, len(partitionedTables))
	for i, t := range partitionedTables {
		tables[i], periods[i] = t.name, t.period
	}
	err = s.pg.Select(ctx, missingPartitionsSQL, postgres.Args{
		"tables": tables, "periods": periods, "ahead": partitionsAhead,
	}, &missing)
	return missing, wrap("missing partitions", err)
}

// alertPartitions raises and closes the alerts of MakePartitions.
func (s *Store) alertPartitions(ctx context.Context) error {
	missing, err := s.missingPartitions(ctx)
	if err != nil {
		return err
	}
	subjects, details := []string{}, []string{}
	for _, m := range missing {
		if m.Ahead <= minPartitionsAhead {
			subjects = append(subjects, m.Parent)
			details = append(details, "no partition begins at "+m.Begins.UTC().Format(time.RFC3339))
		}
	}
	for _, t := range partitionedTables {
		var stray bool
		strayIDs := postgres.SQL(fmt.Sprintf(strayIDsSQL, t.name, t.key, t.name))
		if err := s.pg.Get(ctx, strayIDs, postgres.Args{"age": minPartitionAge.Milliseconds()}, &stray); err != nil {
			return err
		}
		if stray {
			subjects, details = append(subjects, t.name+"_default"), append(details, "holds ids of other partitions")
		}
	}
	var raised int
	return s.pg.Get(ctx, partitionAlertSQL, postgres.Args{"subjects": subjects, "details": details}, &raised)
}

// changePartition runs a statement that changes a table's partitions. done is the statement's
// result, or false if the statement did not get its locks within partitionLockTimeout.
func (s *Store) changePartition(
	ctx context.Context, statement postgres.Statement, args postgres.Args,
) (done bool, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		ctx, err := tx.AllowLongStatements(ctx, postgres.LongStatement)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", partitionLockTimeout.Milliseconds()))
		if err != nil {
			return err
		}
		return tx.Get(ctx, statement, args, &done)
	})
	if postgres.IsLockTimeout(err) {
		return false, nil
	}
	return done, err
}

// oldPartition is a partition that began longer ago than the retention of its table.
type oldPartition struct {
	Name           string
	Lowest, Beyond uuid.UUID
	Ended          bool // the partition also ended longer ago than the retention
	Kept           int  // rows that an ended one must keep; if more than the table's moves, it stays
}

func (s *Store) oldPartitions(ctx context.Context, t partitionedTable) (old []oldPartition, err error) {
	err = s.pg.Select(ctx, oldPartitionsSQL, postgres.Args{
		"table": t.name, "age": t.retention(s.retention).Milliseconds(), "most": t.moves,
	}, &old)
	return old, wrap("old partitions", err)
}

// DropOldPartitions drops one partition that is past its retention. It moves the rows that
// retention keeps, at most the table's moves, to the default partition. It returns limit if it has
// dropped a partition, else 0. It skips a table that a long transaction or a dump locks.
func (s *Store) DropOldPartitions(ctx context.Context, limit int) (int, error) {
	for _, t := range partitionedTables {
		if t.retention == nil {
			continue
		}
		old, err := s.oldPartitions(ctx, t)
		if err != nil {
			return 0, err
		}
		for _, p := range old {
			if !p.Ended || p.Kept > t.moves {
				continue
			}
			done, err := s.changePartition(ctx, dropPartitionSQL, postgres.Args{
				"table": t.name, "partition": p.Name, "age": t.retention(s.retention).Milliseconds(), "most": t.moves,
			})
			if done || err != nil {
				return limit, wrap("drop partition "+p.Name, err)
			}
		}
	}
	return 0, nil
}

// idRange is a range of ids: from lowest, below beyond.
type idRange struct{ lowest, beyond uuid.UUID }

// leftToPartitions returns the ids of the rows that are removed with their partition, not one by
// one. They are the ids of the latest run of adjacent partitions that began longer ago than the
// retention. A partition that must keep too many rows ends a run, since it cannot be dropped. A gap
// between partitions also ends a run: the rows of a gap are in the default partition.
func (s *Store) leftToPartitions(ctx context.Context, table string) (left idRange, err error) {
	for _, t := range partitionedTables {
		if t.name != table {
			continue
		}
		old, err := s.oldPartitions(ctx, t)
		if err != nil {
			return idRange{}, err
		}
		for _, p := range old {
			switch {
			case p.Ended && p.Kept > t.moves:
				left = idRange{}
			case p.Lowest != left.beyond:
				left = idRange{p.Lowest, p.Beyond}
			default:
				left.beyond = p.Beyond
			}
		}
	}
	return left, nil
}
