package models

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"partnerbilling/models/postgres"
)

// ErrSandboxUntouched says that a call to the sandbox certainly changed nothing. After any other
// error that is unknown.
var ErrSandboxUntouched = errors.New("models: sandbox untouched")

// OpenSandboxAccount opens the account of an agreement. An open account stays unchanged.
func (s *Store) OpenSandboxAccount(ctx context.Context, agreementID string, b Behaviour) error {
	if _, err := ParseBehaviour(string(b)); err != nil {
		return err
	}
	err := s.pg.Do(ctx, func() error {
		_, err := s.db.NewRaw(`
			INSERT INTO sandbox_accounts (agreement_id, behaviour, opened_at) VALUES (?, ?, svc_now())
			ON CONFLICT (agreement_id) DO NOTHING`, agreementID, b).Exec(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("models: open sandbox account: %w", err)
	}
	return nil
}

// The statement looks up each order's account through its key, whatever the statistics say, so that
// a plan made on empty tables stays good. Keys are sorted, so that calls with the same keys cannot
// deadlock.
const sqlDebitSandbox = `
	WITH clock AS MATERIALIZED (
		SELECT now,
		       EXISTS (SELECT FROM sandbox_faults WHERE fault = 'bankDown' AND ends_at > now) AS bank_down,
		       EXISTS (SELECT FROM sandbox_faults WHERE fault = 'answersLost' AND ends_at > now) AS answers_lost
		FROM (SELECT svc_now() AS now OFFSET 0) AS service
	), asked AS MATERIALIZED (
		SELECT o.*, clock.now, a.behaviour,
		       clock.bank_down OR coalesce(a.behaviour = 'bankDown' AND clock.now < a.opened_at + $5, false) AS down,
		       clock.answers_lost OR coalesce(a.behaviour = 'answerLost', false) AS lost
		FROM clock CROSS JOIN unnest($1::text[], $2::text[], $3::bigint[], $4::text[])
		     WITH ORDINALITY AS o (key, agreement_id, amount, currency, place)
		LEFT JOIN LATERAL (SELECT behaviour, opened_at FROM sandbox_accounts
		                   WHERE agreement_id = o.agreement_id LIMIT 1) a ON true
	), made AS (
		INSERT INTO sandbox_debits (key, agreement_id, amount, currency, status, reason, decided_at, due_at)
		SELECT key, agreement_id, amount, currency,
		       CASE WHEN behaviour IN ('pays', 'bankDown', 'answerLost') THEN 'succeeded'
		            WHEN behaviour = 'slow' THEN 'undecided'
		            ELSE 'refused' END,
		       CASE WHEN behaviour IN ('pays', 'bankDown', 'answerLost', 'slow') THEN NULL
		            WHEN behaviour IN ('insufficientFunds', 'limitExceeded') THEN behaviour
		            WHEN behaviour = 'declines' THEN 'declinedByCustomer'
		            ELSE 'accountUnavailable' END,
		       now,
		       CASE WHEN behaviour = 'slow' THEN statement_timestamp() + $6 * interval '1 millisecond' END
		FROM asked WHERE NOT down ORDER BY key, place
		ON CONFLICT (key) DO NOTHING
		RETURNING key, agreement_id, amount, currency, status, reason
	)
	SELECT asked.place, asked.down, asked.lost,
	       coalesce(made.status, ''), coalesce(made.reason, ''),
	       coalesce((made.agreement_id, made.amount, made.currency) =
	                (asked.agreement_id, asked.amount, asked.currency), false)
	FROM asked LEFT JOIN made USING (key)`

// DebitSandbox debits each order at most once for its key. The first order under a key fixes its
// agreement, amount and currency, and gets an answer by its account's behaviour. Later orders get
// the recorded answer, or SandboxConflict if they differ. New keys cost one statement together,
// known keys a second.
//
// The answers have the order of the orders. With an error, an answer with Status "" is unknown.
// After ErrSandboxUntouched, this call has debited nothing and will not.
func (s *Store) DebitSandbox(ctx context.Context, orders []SandboxOrder) ([]SandboxAnswer, error) {
	answers := make([]SandboxAnswer, len(orders))
	if err := s.makeSandboxDebits(ctx, orders, answers); err != nil {
		return answers, fmt.Errorf("models: debit sandbox: %w", err)
	}
	if err := s.answerKnown(ctx, orders, answers); err != nil {
		return answers, fmt.Errorf("models: debit sandbox: %w", err)
	}
	return answers, nil
}

// answerKnown answers the orders with known keys: those still without an answer, and those of
// unavailable banks.
func (s *Store) answerKnown(ctx context.Context, orders []SandboxOrder, answers []SandboxAnswer) error {
	var open []int
	var keys []string
	for i, a := range answers {
		if a.Status == "" || a.Status == SandboxBankIsDown {
			open, keys = append(open, i), append(keys, orders[i].Key)
		}
	}
	if len(open) == 0 {
		return nil
	}
	records, err := s.sandboxRecords(ctx, keys)
	for _, i := range open {
		if r, known := records[orders[i].Key]; known {
			answers[i] = r.answerTo(orders[i])
		} else if err != nil {
			answers[i] = SandboxAnswer{}
		}
	}
	return err
}

// makeSandboxDebits answers the orders with new keys, and those of unavailable banks.
func (s *Store) makeSandboxDebits(ctx context.Context, orders []SandboxOrder, answers []SandboxAnswer) error {
	n := len(orders)
	keys, agreements, currencies := make([]string, n), make([]string, n), make([]string, n)
	amounts := make([]int64, n)
	for i, o := range orders {
		keys[i], agreements[i], amounts[i], currencies[i] = o.Key, o.AgreementID, int64(o.Amount), o.Currency
	}
	return s.sandboxQuery(ctx, func(rows *sql.Rows) error {
		var place int
		var down, lost, same bool
		var status SandboxStatus
		var reason string
		if err := rows.Scan(&place, &down, &lost, &status, &reason, &same); err != nil {
			return err
		}
		a := &answers[place-1]
		switch {
		case status != "" && !same:
			*a = SandboxAnswer{Status: SandboxConflict}
		case status != "" && lost:
			*a = SandboxAnswer{Status: SandboxLost}
		case status == SandboxUndecided:
			*a = SandboxAnswer{Status: status, DueIn: SandboxSlowness}
		case status != "":
			*a = SandboxAnswer{Status: status, Reason: reason}
		case down:
			*a = SandboxAnswer{Status: SandboxBankIsDown}
		}
		return nil
	}, sqlDebitSandbox, keys, agreements, amounts, currencies,
		SandboxBankDownFor.Milliseconds(), SandboxSlowness.Milliseconds())
}

// LookupSandbox returns the record of each key, in the order of the keys: SandboxUnseen if there is
// none.
func (s *Store) LookupSandbox(ctx context.Context, keys []string) ([]SandboxAnswer, error) {
	records, err := s.sandboxRecords(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("models: look up in sandbox: %w", err)
	}
	answers := make([]SandboxAnswer, len(keys))
	for i, key := range keys {
		answers[i] = SandboxAnswer{Status: SandboxUnseen}
		if r, ok := records[key]; ok {
			answers[i] = r.answer()
			answers[i].Held = r.SandboxParticulars
		}
	}
	return answers, nil
}

// CancelSandbox cancels keys that are undecided or unrecorded, so that they are never debited. It
// returns their status in the order of the keys: SandboxCancelled, or the earlier final status.
func (s *Store) CancelSandbox(ctx context.Context, keys []string) ([]SandboxAnswer, error) {
	err := s.sandboxQuery(ctx, func(*sql.Rows) error { return nil }, `
		INSERT INTO sandbox_debits AS d (key, status, decided_at)
		SELECT key, 'cancelled', now
		FROM (SELECT DISTINCT unnest($1::text[]) AS key) AS k, (SELECT svc_now() AS now) AS clock ORDER BY key
		ON CONFLICT (key) DO UPDATE SET status = 'cancelled', decided_at = excluded.decided_at
		WHERE d.status = 'undecided'`, keys)
	if err != nil {
		return nil, fmt.Errorf("models: cancel in sandbox: %w", err)
	}
	return s.LookupSandbox(ctx, keys)
}

// SandboxDebits returns a page of the sandbox's own list: at most limit entries, sorted by key,
// after the given key ("" for the first page). It is for audits; callers of the rail use
// LookupSandbox.
func (s *Store) SandboxDebits(ctx context.Context, after string, limit int) ([]SandboxDebit, error) {
	if err := s.decideSandbox(ctx, nil); err != nil {
		return nil, fmt.Errorf("models: list sandbox debits: %w", err)
	}
	var page []SandboxDebit
	err := s.sandboxQuery(ctx, func(rows *sql.Rows) error {
		r, err := scanSandboxRecord(rows)
		page = append(page, r.SandboxDebit)
		return err
	}, sqlSandboxRecords+` WHERE key > $1 ORDER BY key LIMIT $2`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("models: list sandbox debits: %w", err)
	}
	return page, nil
}

// sandboxRecord is a row of sandbox_debits, as read by one statement.
type sandboxRecord struct {
	SandboxDebit
	dueIn time.Duration // of an undecided one; not above 0 once it can be decided
}

func (r sandboxRecord) answer() SandboxAnswer {
	a := SandboxAnswer{Status: r.Status, Reason: r.Reason}
	if r.Status == SandboxUndecided {
		a.DueIn = max(r.dueIn, 0)
	}
	return a
}

// answerTo answers a debit with a known key.
func (r sandboxRecord) answerTo(o SandboxOrder) SandboxAnswer {
	if r.AgreementID != "" && r.SandboxOrder != o {
		return SandboxAnswer{Status: SandboxConflict}
	}
	return r.answer()
}

const sqlSandboxRecords = `
	SELECT key, coalesce(agreement_id, ''), coalesce(amount, 0), coalesce(currency, ''), status, coalesce(reason, ''),
	       decided_at, coalesce(extract(epoch FROM due_at - statement_timestamp()) * 1000, 0)::bigint
	FROM sandbox_debits`

func scanSandboxRecord(rows *sql.Rows) (sandboxRecord, error) {
	var r sandboxRecord
	var dueIn int64
	err := rows.Scan(&r.Key, &r.AgreementID, &r.Amount, &r.Currency, &r.Status, &r.Reason, &r.DecidedAt, &dueIn)
	r.dueIn = time.Duration(dueIn) * time.Millisecond
	return r, err
}

// sandboxRecords reads the records of keys, after deciding due debits.
func (s *Store) sandboxRecords(ctx context.Context, keys []string) (map[string]sandboxRecord, error) {
	records, due, err := s.readSandboxRecords(ctx, keys)
	if err != nil || len(due) == 0 {
		return records, err
	}
	if err := s.decideSandbox(ctx, due); err != nil {
		return nil, err
	}
	records, _, err = s.readSandboxRecords(ctx, keys)
	return records, err
}

func (s *Store) readSandboxRecords(ctx context.Context, keys []string) (map[string]sandboxRecord, []string, error) {
	records := make(map[string]sandboxRecord, len(keys))
	var due []string
	err := s.sandboxQuery(ctx, func(rows *sql.Rows) error {
		r, err := scanSandboxRecord(rows)
		records[r.Key] = r
		if r.Status == SandboxUndecided && r.dueIn <= 0 {
			due = append(due, r.Key)
		}
		return err
	}, sqlSandboxRecords+` WHERE key = ANY ($1::text[])`, keys)
	return records, due, err
}

// decideSandbox turns due undecided debits into succeeded ones: those of keys, or all if keys is
// nil. A statement records the decision, rather than each reader deriving it, so that a
// cancellation cannot contradict an answer given before.
func (s *Store) decideSandbox(ctx context.Context, keys []string) error {
	return s.sandboxQuery(ctx, func(*sql.Rows) error { return nil }, `
		UPDATE sandbox_debits SET status = 'succeeded', decided_at = svc_now()
		WHERE status = 'undecided' AND due_at <= statement_timestamp() AND ($1::text[] IS NULL OR key = ANY ($1::text[]))`, keys)
}

// sandboxQuery sends one statement and scans its rows. Its error says whether a failed statement
// may have had an effect.
func (s *Store) sandboxQuery(ctx context.Context, scan func(*sql.Rows) error, query string, args ...any) error {
	sent := false
	err := s.pg.Do(ctx, func() error {
		rows, err := s.db.DB.QueryContext(ctx, query, args...)
		if err != nil {
			sent = sent || !postgres.IsUntouched(err)
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			if err := scan(rows); err != nil {
				sent = true
				return err
			}
		}
		sent = sent || !postgres.IsUntouched(rows.Err())
		return rows.Err()
	})
	if err != nil && !sent {
		return fmt.Errorf("%w: %w", ErrSandboxUntouched, err)
	}
	return err
}
