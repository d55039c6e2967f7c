package models

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"partnerbilling/models/postgres"
)

// recordActSQL adds an entry to the audit log. If :organisation is the nil UUID, the entry gets the
// organisation of :site.
var recordActSQL = postgres.SQL(`
INSERT INTO audit_log (id, at, actor_kind, actor, origin, act, subject_kind, subject, organisation_id, site_id, detail,
    outcome, code, trace_id)
VALUES (:id, svc_now(), :actor_kind, :actor, :origin, :act, :subject_kind, :subject,
    coalesce(nullif(:organisation::uuid, '00000000-0000-0000-0000-000000000000'),
        (SELECT organisation_id FROM sites WHERE id = :site::uuid)),
    nullif(:site::uuid, '00000000-0000-0000-0000-000000000000'), :detail::jsonb, :outcome, :code, :trace)`)

// errUnchanged ends the database transaction of an act that finds nothing to change. act turns
// errUnchanged into success. Neither act nor EndAct then records the act as done.
var errUnchanged = errors.New("models: nothing to change")

// act runs do in one database transaction. The same transaction records the context's act as done,
// if the context carries one. Of several transactions of an act, only the first to succeed may
// record the act.
func (s *Store) act(ctx context.Context, do func(tx postgres.Tx) error) error {
	act := actFrom(ctx)
	err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
		if err := do(tx); err != nil || act.recorded {
			return err
		}
		return act.record(ctx, tx, ActDone, "")
	})
	if errors.Is(err, errUnchanged) {
		err = nil
	}
	act.recorded = act.recorded || err == nil
	return err
}

// record adds the act to the audit log, with its outcome and the code of a refusal or a failure.
func (a *Act) record(ctx context.Context, on postgres.Session, outcome ActOutcome, code string) error {
	organisation := a.organisation
	if organisation.IsZero() {
		organisation = a.Actor.OrganisationID
	}
	if a.Reason != "" {
		a.with("reason", a.Reason)
	}
	detail := []byte("{}")
	if len(a.detail) > 0 {
		var err error
		if detail, err = json.Marshal(a.detail); err != nil {
			return err
		}
	}
	_, err := on.Run(ctx, recordActSQL, postgres.Args{
		"id": NewID[auditNoun](), "actor_kind": string(a.Actor.Kind), "actor": a.Actor.Name, "origin": a.Actor.Origin,
		"act": string(a.Name), "subject_kind": string(a.subjectKind), "subject": a.subject,
		"organisation": organisation, "site": a.site, "detail": string(detail), "outcome": string(outcome),
		"code": code, "trace": string(TraceIDFrom(ctx)),
	})
	return err
}

// endActTimeout bounds the recording of an act that has ended.
const endActTimeout = 10 * time.Second

// EndAct ends the context's act, and records its outcome: done if failure is nil, else refused or
// failed. EndAct does not record "done" if a transaction of the act has recorded it, or has found
// nothing to change. An act that fails after a transaction has recorded it as done gets a second
// entry. EndAct does nothing without an act, and works even after the end of ctx.
func (s *Store) EndAct(ctx context.Context, failure error) error {
	act := actFrom(ctx)
	if act.Name == "" || act.recorded && failure == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endActTimeout)
	defer cancel()
	outcome, code := outcomeOf(failure)
	return wrap("record the act", act.record(ctx, s.pg, outcome, code))
}

// auditRow is a row of the table audit_log.
type auditRow struct {
	bun.BaseModel `bun:"table:audit_log"`
	AuditEntry
}

// AuditLog returns at most limit entries that the filter selects, newest first. They follow the
// position after in that order. The zero position begins with the newest entry.
func (s *Store) AuditLog(
	ctx context.Context, filter AuditFilter, after AuditPosition, limit int64,
) (entries []AuditEntry, err error) {
	err = s.pg.Read(ctx, func(on bun.IDB) error {
		var rows []auditRow
		q := on.NewSelect().Model(&rows).Order("at DESC", "id DESC").Limit(limit)
		if after != (AuditPosition{}) {
			q.Where("(at, id) < (?, ?)", after.At, after.Key)
		}
		filter.restrict(q)
		if err := q.Scan(ctx); err != nil {
			return err
		}
		entries = make([]AuditEntry, len(rows))
		for i := range rows {
			entries[i] = rows[i].AuditEntry
		}
		return nil
	})
	return entries, wrap("audit log", err)
}

// restrict adds the conditions of the filter to a query.
func (f AuditFilter) restrict(q *bun.SelectQuery) {
	if f.From != 0 {
		q.Where("at >= ?", f.From)
	}
	if f.To != 0 {
		q.Where("at < ?", f.To)
	}
	if f.Actor != "" {
		q.Where("actor = ?", f.Actor)
	}
	if f.Act != "" {
		q.Where("act = ?", f.Act)
	}
	if !f.OrganisationID.IsZero() {
		q.Where("organisation_id = ?", f.OrganisationID)
	}
	if f.Subject != "" {
		q.Where("subject = ?", f.Subject)
	}
}
