package models

import (
	"context"
	_ "embed" // statements
	"slices"

	"partnerbilling/models/postgres"
)

var (
	pauseDebitsSQL = postgres.SQL(`
INSERT INTO debit_pauses (organisation_id, paused_at, paused_by, reason)
VALUES (:organisation, svc_now(), :by, :reason) ON CONFLICT DO NOTHING`)
	resumeDebitsSQL = postgres.SQL(`DELETE FROM debit_pauses WHERE organisation_id = :organisation`)
	pausedSQL       = postgres.SQL(`SELECT organisation_id FROM debit_pauses`)
	addWakeTasksSQL = postgres.SQL(`
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, trace_id, available_at)
SELECT w.id, :kind, :queue, w.organisation_id, :no_site, w.organisation_id, :trace, svc_now()
FROM unnest(:tasks::uuid[], :organisations::uuid[]) AS w (id, organisation_id)`)

	//go:embed pause_wake.sql
	pauseWakeText string
	wakeDebitsSQL = postgres.SQL(pauseWakeText)

	pauseQueueSQL = postgres.SQL(`
INSERT INTO queue_pauses (queue, paused_at, paused_by, reason)
VALUES (:queue, svc_now(), :by, :reason) ON CONFLICT DO NOTHING`)
	resumeQueueSQL = postgres.SQL(`DELETE FROM queue_pauses WHERE queue = :queue`)
	pausesSQL      = postgres.SQL(`
SELECT d.organisation_id, o.name AS organisation, '' AS queue, d.paused_at AS at, d.paused_by AS by, d.reason
FROM debit_pauses d JOIN organisations o ON o.id = d.organisation_id
UNION ALL
SELECT '00000000-0000-0000-0000-000000000000', '', q.queue, q.paused_at, q.paused_by, q.reason FROM queue_pauses q
ORDER BY at`)
)

// PauseDebits pauses the debits of an organisation's batches. No debit call begins for them until
// ResumeDebits; calls in flight finish. Rows in doubt are looked up, and every row settles by its
// deadline: a row without a debit call as timedOut. Payments of a checkout are not affected.
// Errors: ErrReason; ErrPaused; ErrNotFound for an unknown organisation.
func (s *Store) PauseDebits(ctx context.Context, organisation OrganisationID) error {
	act := actFrom(ctx).about(SubjectOrganisation, organisation.String()).in(organisation, SiteID{})
	if err := act.needsReason(); err != nil {
		return err
	}
	err := s.act(ctx, func(tx postgres.Tx) error {
		n, err := tx.Run(ctx, pauseDebitsSQL, postgres.Args{
			"organisation": organisation, "by": act.Actor.Name, "reason": act.Reason,
		})
		if err == nil && n == 0 {
			err = ErrPaused
		}
		return err
	})
	if isForeignKeyViolation(err) {
		err = notFoundError("organisation")
	}
	return wrap("pause debits", err)
}

// ResumeDebits ends the pause of an organisation's debits. The returned task, of kind
// TaskWakeDebits, makes the postponed tasks due. Errors: ErrReason; ErrNotPaused.
func (s *Store) ResumeDebits(ctx context.Context, organisation OrganisationID) (TaskID, error) {
	act := actFrom(ctx).about(SubjectOrganisation, organisation.String()).in(organisation, SiteID{})
	if err := act.needsReason(); err != nil {
		return TaskID{}, err
	}
	var task TaskID
	err := s.act(ctx, func(tx postgres.Tx) error {
		n, err := tx.Run(ctx, resumeDebitsSQL, postgres.Args{"organisation": organisation})
		if err != nil {
			return err
		}
		if n == 0 {
			return ErrNotPaused
		}
		tasks, err := addWakeTasks(ctx, tx, organisation)
		if err == nil {
			task = tasks[0]
		}
		return err
	})
	return task, wrap("resume debits", err)
}

// addWakeTasks adds and returns a task of kind TaskWakeDebits for each organisation.
func addWakeTasks(ctx context.Context, tx postgres.Tx, organisations ...OrganisationID) ([]TaskID, error) {
	tasks := make([]TaskID, len(organisations))
	for i := range tasks {
		tasks[i] = NewID[taskNoun]()
	}
	_, err := tx.Run(ctx, addWakeTasksSQL, postgres.Args{
		"tasks": tasks, "organisations": organisations, "kind": string(TaskWakeDebits),
		"queue": string(TaskWakeDebits.Queue()), "no_site": SiteID{}, "trace": string(TraceIDFrom(ctx)),
	})
	return tasks, err
}

// WakeDebits makes at most limit postponed debit tasks of an organisation due, and returns their
// number; below limit, none is left. While the organisation's debits are paused, it wakes only the
// tasks of cancelled batches. task, of kind TaskWakeDebits, names the organisation.
func (s *Store) WakeDebits(ctx context.Context, task TaskID, limit int) (n int, err error) {
	err = s.pg.Get(ctx, wakeDebitsSQL, postgres.Args{
		"task": task, "queue": string(QueueDebits), "most": limit,
	}, &n)
	return n, wrap("wake debits", err)
}

// PauseQueue stops the dispatch of a queue's tasks. Tasks that are already in Redis still run,
// among them retries of webhooks. Deadlines stay: at its deadline, a row settles without its task,
// as unconfirmed if it is in doubt. Errors: ErrReason; ErrNotPausable; ErrPaused.
func (s *Store) PauseQueue(ctx context.Context, q Queue) error {
	act := actFrom(ctx)
	return wrap("pause queue", s.changeQueue(ctx, q, ErrPaused, pauseQueueSQL, postgres.Args{
		"queue": string(q), "by": act.Actor.Name, "reason": act.Reason,
	}))
}

// ResumeQueue ends the pause of a queue. Errors: ErrReason; ErrNotPausable; ErrNotPaused.
func (s *Store) ResumeQueue(ctx context.Context, q Queue) error {
	return wrap("resume queue", s.changeQueue(ctx, q, ErrNotPaused, resumeQueueSQL, postgres.Args{"queue": string(q)}))
}

// changeQueue runs a statement that begins or ends a queue's pause. It returns the error unchanged
// if the statement changes no row.
func (s *Store) changeQueue(
	ctx context.Context, q Queue, unchanged error, change postgres.Statement, args postgres.Args,
) error {
	act := actFrom(ctx).about(SubjectQueue, string(q))
	if err := act.needsReason(); err != nil {
		return err
	}
	if !slices.Contains(PausableQueues, q) {
		return ErrNotPausable
	}
	return s.act(ctx, func(tx postgres.Tx) error {
		n, err := tx.Run(ctx, change, args)
		if err == nil && n == 0 {
			err = unchanged
		}
		return err
	})
}

// Pauses returns the pauses in force, the oldest first.
func (s *Store) Pauses(ctx context.Context) (pauses []Pause, err error) {
	err = s.pg.Select(ctx, pausesSQL, nil, &pauses)
	return pauses, wrap("pauses", err)
}
