package models

import (
	"context"
	_ "embed" // statements
	"errors"
	"fmt"
	"time"

	"partnerbilling/models/postgres"
)

// ErrSandboxUntouched says that the failed statement of a call to the sandbox certainly changed
// nothing. After any other error, it is unknown whether the statement changed something. Earlier
// statements of the call may have made debits; DebitSandbox has then answered them.
var ErrSandboxUntouched = errors.New("models: sandbox untouched")

var (
	//go:embed sandbox_debit.sql
	debitSandboxText string
	debitSandboxSQL  = postgres.SQL(debitSandboxText)

	//go:embed sandbox_list.sql
	listSandboxText string
	listSandboxSQL  = postgres.SQL(listSandboxText)

	openAccountSQL = postgres.SQL(`
INSERT INTO sandbox_accounts (agreement_id, behaviour, opened_at) VALUES (:agreement, :behaviour, svc_now())
ON CONFLICT (agreement_id) DO NOTHING`)
	cancelSandboxSQL = postgres.SQL(`
INSERT INTO sandbox_debits AS d (key, status, changed_at)
SELECT key, 'cancelled', now
FROM (SELECT DISTINCT unnest(:keys::text[]) AS key) AS k, (SELECT svc_now() AS now) AS clock ORDER BY key
ON CONFLICT (key) DO UPDATE SET status = 'cancelled', changed_at = excluded.changed_at
WHERE d.status = 'undecided'`)
	sandboxRecordsSQL = postgres.SQL(sandboxRecords + `WHERE key = ANY (:keys::text[])`)
	sandboxPageSQL    = postgres.SQL(sandboxRecords + `WHERE key > :after ORDER BY key LIMIT :limit`)
	decideSandboxSQL  = postgres.SQL(`
UPDATE sandbox_debits SET status = 'succeeded', changed_at = svc_now()
WHERE status = 'undecided' AND due_at <= statement_timestamp()
  AND (:keys::text[] IS NULL OR key = ANY (:keys::text[]))`)
)

// sandboxRecords is the beginning of a statement that selects rows of type sandboxRecord.
const sandboxRecords = `
SELECT key, agreement_id, amount, currency, status, reason, changed_at,
    (extract(epoch FROM due_at - statement_timestamp()) * 1000)::bigint AS due_in_ms
FROM sandbox_debits
`

// OpenSandboxAccount opens the account of an agreement with a behaviour. An account that exists
// stays unchanged. ErrUnknownBehaviour: there is no such behaviour.
func (s *Store) OpenSandboxAccount(ctx context.Context, agreementID string, b Behaviour) error {
	if _, err := ParseBehaviour(string(b)); err != nil {
		return err
	}
	_, err := s.pg.Run(ctx, openAccountSQL, postgres.Args{"agreement": agreementID, "behaviour": string(b)})
	return wrap("open sandbox account", err)
}

// DebitSandbox debits each order at most once for its key. The first order under a key fixes its
// agreement, amount and currency, and gets an answer by its account's behaviour. Later orders get
// the recorded answer, or SandboxConflict if they differ. A call that makes all debits is one
// statement; other calls need up to four.
//
// The answers have the order of the orders. With an error, the answers with Status "" are not
// known, and the others are valid. After ErrSandboxUntouched, this call has debited nothing for the
// orders whose answers are not known, and will not.
func (s *Store) DebitSandbox(ctx context.Context, orders []SandboxOrder) ([]SandboxAnswer, error) {
	answers := make([]SandboxAnswer, len(orders))
	err := s.makeSandboxDebits(ctx, orders, answers)
	if err == nil {
		err = s.answerKnown(ctx, orders, answers)
	}
	return answers, wrap("debit sandbox", err)
}

// answerKnown answers the orders with keys that were recorded before. makeSandboxDebits has left
// their answers empty, or SandboxBankIsDown.
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
	records, err := s.recordsOf(ctx, keys)
	for _, i := range open {
		if r, known := records[orders[i].Key]; known {
			answers[i] = r.answerTo(orders[i])
		} else if err != nil {
			answers[i] = SandboxAnswer{}
		}
	}
	return err
}

// makeSandboxDebits debits the orders with new keys and answers them. It answers SandboxBankIsDown
// to every order of an unavailable bank, also if the key is known.
func (s *Store) makeSandboxDebits(ctx context.Context, orders []SandboxOrder, answers []SandboxAnswer) error {
	n := len(orders)
	keys, agreements, currencies := make([]string, n), make([]string, n), make([]string, n)
	amounts := make([]int64, n)
	for i, o := range orders {
		keys[i], agreements[i], amounts[i], currencies[i] = o.Key, o.AgreementID, int64(o.Amount), o.Currency
	}
	var rows []struct {
		Number           int // of the order, from 1
		Down, Lost, Same bool
		Status           SandboxStatus
		Reason           string
	}
	err := s.sandboxSelect(ctx, debitSandboxSQL, postgres.Args{
		"keys": keys, "agreements": agreements, "amounts": amounts, "currencies": currencies,
		"bank_down_for": SandboxBankDownFor.Milliseconds(), "slowness": SandboxSlowness.Milliseconds(),
	}, &rows)
	for _, row := range rows {
		a := &answers[row.Number-1]
		switch {
		case row.Status != "" && !row.Same:
			*a = SandboxAnswer{Status: SandboxConflict}
		case row.Status != "" && row.Lost:
			*a = SandboxAnswer{Status: SandboxLost}
		case row.Status == SandboxUndecided:
			*a = SandboxAnswer{Status: row.Status, DueIn: SandboxSlowness}
		case row.Status != "":
			*a = SandboxAnswer{Status: row.Status, Reason: row.Reason}
		case row.Down:
			*a = SandboxAnswer{Status: SandboxBankIsDown}
		}
	}
	return err
}

// LookupSandbox returns the recorded state of each key, in the order of the keys: SandboxUnseen if
// nothing is recorded. It first decides undecided debits that are due.
func (s *Store) LookupSandbox(ctx context.Context, keys []string) ([]SandboxAnswer, error) {
	records, err := s.recordsOf(ctx, keys)
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
	err := s.sandboxSelect(ctx, cancelSandboxSQL, postgres.Args{"keys": keys}, nil)
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
	var page []sandboxRecord
	err := s.sandboxSelect(ctx, sandboxPageSQL, postgres.Args{"after": after, "limit": limit}, &page)
	if err != nil {
		return nil, fmt.Errorf("models: list sandbox debits: %w", err)
	}
	debits := make([]SandboxDebit, len(page))
	for i := range page {
		debits[i] = page[i].SandboxDebit
	}
	return debits, nil
}

// ListSandbox returns a page of the successful debits by time. It changes nothing.
func (s *Store) ListSandbox(ctx context.Context, q SandboxListQuery) (SandboxList, error) {
	var rows []struct {
		SandboxDebit
		CompleteFrom, CompleteTo Millis
	}
	err := s.pg.Select(ctx, listSandboxSQL, postgres.Args{
		"from": q.From, "after_key": q.AfterKey, "to": q.To, "limit": q.Limit + 1,
		"delay": SandboxListDelay.Milliseconds(), "memory": s.retention.SandboxRail.Milliseconds(),
	}, &rows)
	if err != nil {
		return SandboxList{}, wrap("list sandbox debits", err)
	}
	// Every row repeats the bounds. A list without debits is one row without a debit.
	list := SandboxList{CompleteFrom: rows[0].CompleteFrom, CompleteTo: rows[0].CompleteTo, More: len(rows) > q.Limit}
	for _, row := range rows[:min(len(rows), q.Limit)] {
		if row.Key != "" {
			list.Debits = append(list.Debits, row.SandboxDebit)
		}
	}
	return list, nil
}

// sandboxRecord is a row of sandbox_debits, as read by one statement.
type sandboxRecord struct {
	SandboxDebit
	DueInMs int64 // of an undecided debit: milliseconds until it can be decided; 0 or less: it can
}

// answer returns the recorded answer.
func (r sandboxRecord) answer() SandboxAnswer {
	a := SandboxAnswer{Status: r.Status, Reason: r.Reason}
	if r.Status == SandboxUndecided {
		a.DueIn = max(time.Duration(r.DueInMs)*time.Millisecond, 0)
	}
	return a
}

// answerTo answers an order with the record's key.
func (r sandboxRecord) answerTo(o SandboxOrder) SandboxAnswer {
	if r.AgreementID != "" && r.SandboxOrder != o {
		return SandboxAnswer{Status: SandboxConflict}
	}
	return r.answer()
}

// recordsOf returns the records of keys by key, after it has decided undecided debits that are due.
func (s *Store) recordsOf(ctx context.Context, keys []string) (map[string]sandboxRecord, error) {
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

// readSandboxRecords returns the records of keys by key, and the keys of debits to decide.
func (s *Store) readSandboxRecords(ctx context.Context, keys []string) (map[string]sandboxRecord, []string, error) {
	records := make(map[string]sandboxRecord, len(keys))
	var due []string
	var rows []sandboxRecord
	err := s.sandboxSelect(ctx, sandboxRecordsSQL, postgres.Args{"keys": keys}, &rows)
	for _, r := range rows {
		records[r.Key] = r
		if r.Status == SandboxUndecided && r.DueInMs <= 0 {
			due = append(due, r.Key)
		}
	}
	return records, due, err
}

// decideSandbox turns due undecided debits into succeeded ones: those of keys, or all if keys is
// nil. The decision is stored before a caller sees it, so that a later cancellation cannot
// contradict it.
func (s *Store) decideSandbox(ctx context.Context, keys []string) error {
	return s.sandboxSelect(ctx, decideSandboxSQL, postgres.Args{"keys": keys}, nil)
}

// sandboxSelect sends one statement and scans its rows into dest; nil: there are none. Its error
// wraps ErrSandboxUntouched if the statement certainly had no effect.
func (s *Store) sandboxSelect(ctx context.Context, statement postgres.Statement, args postgres.Args, dest any) error {
	values, err := statement.Bind(args)
	if err != nil {
		return err
	}
	touched := false
	err = s.pg.Do(ctx, func() error {
		err := s.sendSandbox(ctx, statement.Text(), values, dest)
		touched = touched || err != nil && !postgres.IsUntouched(err)
		return err
	})
	if err != nil && !touched {
		return fmt.Errorf("%w: %w", ErrSandboxUntouched, err)
	}
	return err
}

// sendSandbox sends one statement once, for sandboxSelect.
func (s *Store) sendSandbox(ctx context.Context, query string, values []any, dest any) error {
	if dest == nil {
		_, err := s.db.DB.ExecContext(ctx, query, values...)
		return err
	}
	rows, err := s.db.DB.QueryContext(ctx, query, values...) //nolint:rowserrcheck // ScanRows checks it
	if err != nil {
		return err
	}
	return postgres.ScanRows(ctx, s.db, rows, dest)
}
