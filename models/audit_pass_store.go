package models

import (
	"context"
	"time"

	"partnerbilling/models/postgres"
)

// AuditPass is the progress of the recurring audit of money. A pass goes from the oldest kept batch
// to the present, and checks one window of service time after another.
type AuditPass struct {
	// Position is the beginning of the next window; 0: no pass has begun since the last one ended.
	Position Millis
	// WindowMs is the length of the next window, in milliseconds.
	WindowMs int64
	// EndedAt is when the last whole pass ended, or when the database was created.
	EndedAt Millis
	// Now is service time.
	Now Millis
}

// Window returns the length of the next window.
func (p AuditPass) Window() time.Duration { return time.Duration(p.WindowMs) * time.Millisecond }

// Age returns the time since the last whole pass ended.
func (p AuditPass) Age() time.Duration { return max(p.Now.Sub(p.EndedAt), 0) }

var (
	auditPassSQL = postgres.SQL(`
SELECT coalesce(position, 0) AS position, window_ms, ended_at, (SELECT now FROM service_now) AS now FROM audit_pass`)
	moveAuditSQL = postgres.SQL(`
UPDATE audit_pass SET position = nullif(:next::bigint, 0), window_ms = :window,
    ended_at = CASE WHEN :ended THEN svc_now() ELSE ended_at END
WHERE coalesce(position, 0) = :position::bigint`)
	raiseViolationsSQL = postgres.SQL(`
SELECT count(raise_alert(:kind, subject, NULL, NULL, detail, ''))
FROM unnest(:subjects::text[], :details::text[]) AS v (subject, detail)`)
)

// AuditPass returns the progress of the recurring audit.
func (s *Store) AuditPass(ctx context.Context) (p AuditPass, err error) {
	err = s.pg.Get(ctx, auditPassSQL, nil, &p)
	return p, wrap("audit pass", err)
}

// AuditWindow checks the invariants of money in one window of service time: on the batches
// submitted, the payment intents ended and the ledger entries recorded in [from, to). It returns
// the violations, at most auditLimit for each check.
func (s *Store) AuditWindow(ctx context.Context, from, to Millis) ([]Violation, error) {
	var found []Violation
	for _, c := range auditWindowChecks {
		var broken []Violation
		err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
			// Postgres plans anew for this window. A cached plan from the time of small tables
			// could join large tables row by row.
			if _, err := tx.ExecContext(ctx, "SET LOCAL plan_cache_mode = force_custom_plan"); err != nil {
				return err
			}
			broken = nil
			return tx.Select(ctx, c.query, postgres.Args{"limit": auditLimit, "from": from, "to": to}, &broken)
		})
		if err != nil {
			return nil, wrap("audit: "+c.name, err)
		}
		for i := range broken {
			broken[i].Check = c.name
		}
		found = append(found, broken...)
	}
	return found, nil
}

// MoveAudit raises an alert for each violation that was found in a window, and moves the pass on.
// next is the beginning of the next window, and window its length. If next is 0, the pass ends.
// MoveAudit returns false, and changes nothing, if another process has moved the pass away from
// p.Position.
func (s *Store) MoveAudit(
	ctx context.Context, p AuditPass, next Millis, window time.Duration, found []Violation,
) (moved bool, err error) {
	subjects, details := make([]string, len(found)), make([]string, len(found))
	for i, v := range found {
		subjects[i], details[i] = v.Check+": "+v.Subject, v.Detail
	}
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		n, err := tx.Run(ctx, moveAuditSQL, postgres.Args{
			"position": p.Position, "next": next, "window": window.Milliseconds(), "ended": next == 0,
		})
		if moved = n == 1; err != nil || !moved || len(found) == 0 {
			return err
		}
		_, err = tx.Run(ctx, raiseViolationsSQL, postgres.Args{
			"kind": AlertAuditViolation, "subjects": subjects, "details": details,
		})
		return err
	})
	return moved, wrap("move the audit", err)
}
