package models

import (
	"context"
	"database/sql"
	"errors"

	"partnerbilling/models/postgres"
)

// takeAnnouncementSQL ends an announcing task and returns what it announces: a batch, or the row
// first_row of a batch.
var takeAnnouncementSQL = postgres.SQL(`
DELETE FROM outbox WHERE id = :task AND kind IN (:batch, :row) RETURNING kind, site_id, subject_id, first_row`)

// Announce writes the event of a TaskAnnounceBatch or TaskAnnounceRow task and ends the task, in
// one transaction. The statement that changed the state wrote the task, if the endpoint subscribed
// to the event. Announce returns the task that delivers the event; zero if no endpoint takes events
// or nothing is left to announce.
func (s *Store) Announce(ctx context.Context, task TaskID) (delivery TaskID, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		delivery = TaskID{}
		var kind TaskKind
		var site SiteID
		var batch BatchID
		var row int
		err := tx.Get(ctx, takeAnnouncementSQL, postgres.Args{
			"task": task, "batch": string(TaskAnnounceBatch), "row": string(TaskAnnounceRow),
		}, &kind, &site, &batch, &row)
		if err != nil {
			return ignore(err, sql.ErrNoRows) // another worker has announced it
		}
		organisation, n, err := batchNotice(ctx, tx, site, batch, kind, row)
		if err != nil {
			return ignore(err, sql.ErrNoRows) // dropped by retention
		}
		delivery, err = insertNotice(ctx, tx, organisation, n)
		return ignore(err, errEventExists) // two corrections of a row: both tasks announce the last one
	})
	return delivery, wrap("announce", err)
}

// ignore turns an expected error into nil.
func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

var (
	noticeBatchSQL = postgres.SQL(`
SELECT ` + batchColumns + `, b.trace_id FROM batches b WHERE b.site_id = :site AND b.id = :batch`)

	correctedRowSQL = postgres.SQL(`
SELECT row_index AS index, customer_reference, row_reference, amount, state, outcome, corrected_outcome, settled_at,
       attempts
FROM batch_rows
WHERE site_id = :site AND batch_id = :batch AND row_index = :row AND corrected_outcome IS NOT NULL`)
)

// batchNotice reads what a task of the kind announces: a settled batch, or its corrected row. It
// returns sql.ErrNoRows if that is gone.
func batchNotice(
	ctx context.Context, tx postgres.Tx, site SiteID, id BatchID, kind TaskKind, row int,
) (OrganisationID, notice, error) {
	var found struct {
		storedBatch
		TraceID TraceID
	}
	err := tx.Get(ctx, noticeBatchSQL, postgres.Args{"site": site, "batch": id}, &found)
	batch := found.batch()
	if err != nil || kind == TaskAnnounceBatch {
		return batch.OrganisationID, batchSettled(&batch, found.TraceID), err
	}
	var r BatchRow
	err = tx.Get(ctx, correctedRowSQL, postgres.Args{"site": site, "batch": id, "row": row}, &r)
	return batch.OrganisationID, rowCorrected(&batch, &r, found.TraceID), err
}

var changedLinksSQL = postgres.SQL(`
SELECT s.organisation_id, ` + linkColumns + ` FROM unnest(:ids::uuid[]) AS a (id)
JOIN customer_links l ON l.id = a.id JOIN sites s ON s.id = l.site_id ORDER BY l.id`)

// announceLinks writes the events of links that have just changed state, in the same transaction.
// The caller passes only links of Sites with an endpoint that subscribes to the event; see the SQL
// function webhook_wanted.
func announceLinks(ctx context.Context, tx postgres.Tx, ids ...LinkID) error {
	var links []struct {
		OrganisationID OrganisationID
		CustomerLink
	}
	if err := tx.Select(ctx, changedLinksSQL, postgres.Args{"ids": ids}, &links); err != nil {
		return err
	}
	for i := range links {
		_, err := insertNotice(ctx, tx, links[i].OrganisationID, customerChanged(&links[i].CustomerLink))
		if err != nil {
			return err
		}
	}
	return nil
}
