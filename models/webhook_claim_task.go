package models

import (
	"context"

	"partnerbilling/models/postgres"
)

var (
	// endTasksSQL deletes finished tasks.
	endTasksSQL = postgres.SQL(`DELETE FROM outbox WHERE id = ANY (:tasks::uuid[])`)

	// holdTasksSQL postpones the redispatch of tasks until the leases of the workers that send
	// their events end.
	holdTasksSQL = postgres.SQL(`
UPDATE outbox o SET redispatch_after = p.until FROM webhook_slots p
WHERE o.id = ANY (:tasks::uuid[]) AND o.dispatched_at IS NOT NULL
  AND p.organisation_id = o.organisation_id AND p.event_id = o.subject_id`)

	// planTasksSQL postpones tasks until the next attempts of their events.
	planTasksSQL = postgres.SQL(`
UPDATE outbox o SET available_at = e.next_attempt_at, dispatched_at = NULL, redispatch_after = NULL
FROM webhook_events e
WHERE o.id = ANY (:tasks::uuid[]) AND e.organisation_id = o.organisation_id AND e.id = o.subject_id`)

	// leaseTasksSQL leases tasks without a dispatcher's lease. If Redis has delivered a task twice,
	// its first run may have parked the event and postponed the task. The statement makes such a
	// task due as well, in case this worker dies.
	leaseTasksSQL = postgres.SQL(`
UPDATE outbox SET available_at = least(available_at, svc_now()),
    dispatched_at = coalesce(dispatched_at, statement_timestamp()),
    redispatch_after = statement_timestamp() + :webhook_lease * interval '1 ms'
WHERE id = ANY (:tasks::uuid[])`)
)

// moveTasks records the next step of each task: it ends, it is postponed, or it is leased.
func (c *webhookClaims) moveTasks(ctx context.Context) error {
	for _, move := range []struct {
		statement postgres.Statement
		args      postgres.Args
		tasks     []TaskID
	}{
		{endTasksSQL, postgres.Args{}, c.ended},
		{holdTasksSQL, postgres.Args{}, c.held},
		{planTasksSQL, postgres.Args{}, c.planned},
		{leaseTasksSQL, postgres.Args{"webhook_lease": WebhookLease.Milliseconds()}, c.leased},
	} {
		if len(move.tasks) == 0 {
			continue
		}
		move.args["tasks"] = move.tasks
		if _, err := c.tx.Run(ctx, move.statement, move.args); err != nil {
			return err
		}
	}
	return nil
}
