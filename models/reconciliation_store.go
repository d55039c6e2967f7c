package models

import (
	"context"
	_ "embed" // statements
	"maps"
	"slices"
	"strings"
	"time"

	"partnerbilling/models/postgres"
)

var (
	//go:embed reconciliation_ledger.sql
	ledgerBetweenText string
	ledgerBetweenSQL  = postgres.SQL(ledgerBetweenText)

	//go:embed reconciliation_rows.sql
	keyedRowsText string
	keyedRowsSQL  = postgres.SQL(strings.NewReplacer(
		":BATCH_KEY", batchKeySQL, ":ROW_KEY", rowKeySQL).Replace(keyedRowsText))

	//go:embed reconciliation_record.sql
	recordComparisonText string
	recordComparisonSQL  = postgres.SQL(recordComparisonText)

	ledgerOfSQL = postgres.SQL(`
SELECT l.rail_key, l.site_id, l.recorded_at, l.amount, l.currency, l.batch_reference, l.row_reference,
       l.payment_intent_id, l.link_id, c.party AS link_party, i.party AS intent_party
FROM ledger_entries l
LEFT JOIN customer_links c ON c.site_id = l.site_id AND c.id = l.link_id
LEFT JOIN payment_intents i ON i.site_id = l.site_id AND i.id = l.payment_intent_id
WHERE l.rail_key = ANY (:keys::text[])`)
	keyedPaymentsSQL = postgres.SQL(`
SELECT payment_rail_key(i.id) AS rail_key, i.site_id, i.id AS payment_intent_id,
       i.state <> 'final' OR i.in_doubt AS open, i.transaction_status::text AS outcome
FROM payment_intents i WHERE i.id = ANY (:intents::uuid[])`)
	// The subject of a decision is a row's rail key, or a payment's id: its rail key without "p1_".
	decidedKeysSQL = postgres.SQL(`
SELECT key FROM unnest(:keys::text[]) AS key
WHERE EXISTS (SELECT FROM audit_log a WHERE a.subject IN (key, substr(key, 4)) AND a.outcome = 'done'
              AND a.act = ANY (:acts::text[]))`)
	reconciliationSQL = postgres.SQL(`
SELECT coalesce(r.compared_to, 0) AS compared_to, r.since, (SELECT now FROM service_now) AS now,
       (SELECT count(*) FROM (
           SELECT FROM reconciliation_differences WHERE kind = :in_flight LIMIT :most) AS few) AS in_flight
FROM reconciliation r`)
	dueDifferencesSQL = postgres.SQL(`
SELECT rail_key, kind, site_id, coalesce(debited_at, 0) AS debited_at, detail,
       coalesce(debited_at, found_at) <= svc_now() - :rail_memory AS aged
FROM reconciliation_differences
WHERE next_check_at <= svc_now() AND (kind <> ALL (:of_rail::text[])
      OR coalesce(debited_at, found_at) > svc_now() - :rail_memory)
ORDER BY next_check_at LIMIT :limit`)
	dropDifferencesSQL = postgres.SQL(`
DELETE FROM reconciliation_differences WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM reconciliation_differences WHERE found_at <= svc_now() - :age
    ORDER BY found_at LIMIT :limit FOR UPDATE SKIP LOCKED))`)
)

// Reconciliation returns how far the comparison of ledger and rail has come.
func (s *Store) Reconciliation(ctx context.Context) (r Reconciliation, err error) {
	err = s.pg.Get(ctx, reconciliationSQL, postgres.Args{
		"most": MostCounted, "in_flight": string(DifferenceInFlight),
	}, &r)
	return r, wrap("reconciliation", err)
}

// ledgerRow is an entry with its sealed party: the party of the customer link for a row, and of the
// payment intent for a payment.
type ledgerRow struct {
	LedgerEntry
	LinkID                 LinkID
	LinkParty, IntentParty []byte
}

// LedgerBetween returns the ledger entries with from <= RecordedAt < to that follow a position, at
// most limit, ordered by Site, time and rail key.
func (s *Store) LedgerBetween(
	ctx context.Context, from, to Millis, after LedgerPosition, limit int,
) ([]LedgerEntry, error) {
	return s.ledger(ctx, ledgerBetweenSQL, postgres.Args{
		"from": from, "to": to, "limit": limit,
		"after_site": after.SiteID, "after_at": after.RecordedAt, "after_key": after.RailKey,
	})
}

// LedgerOf returns the ledger entries of rail keys, in any order. Keys without an entry are left
// out.
func (s *Store) LedgerOf(ctx context.Context, keys []string) ([]LedgerEntry, error) {
	return s.ledger(ctx, ledgerOfSQL, postgres.Args{"keys": keys})
}

// ledger runs a statement that reads entries, and opens the parties of the entries.
func (s *Store) ledger(ctx context.Context, statement postgres.Statement, args postgres.Args) ([]LedgerEntry, error) {
	var rows []ledgerRow
	if err := s.pg.Select(ctx, statement, args, &rows); err != nil {
		return nil, wrap("ledger", err)
	}
	entries := make([]LedgerEntry, len(rows))
	for i, row := range rows {
		// A party that cannot be opened leaves AgreementID empty.
		payer, _, err := readParty(s, row.LinkParty, row.LinkID)
		if row.PaymentIntentID != (PaymentIntentID{}) {
			payer, _, err = readParty(s, row.IntentParty, row.PaymentIntentID)
		}
		if err != nil {
			return nil, wrap("ledger", err)
		}
		entries[i] = row.LedgerEntry
		entries[i].AgreementID = payer.AgreementID
	}
	return entries, nil
}

// maxKeyedBatches is the maximum number of batches whose rows one statement reads.
const maxKeyedBatches = 20

// DebitSubjects returns the rows and payments of rail keys, in any order. Keys that no row and no
// payment has are left out.
func (s *Store) DebitSubjects(ctx context.Context, keys []string) ([]DebitSubject, error) {
	var found []DebitSubject
	rows := map[[keyedBytes]byte][]string{} // by batch
	var intents []PaymentIntentID
	for _, key := range keys {
		if batch, ok := batchOfKey(key); ok {
			rows[batch] = append(rows[batch], key)
			continue
		}
		id, err := ParseID[intentNoun](strings.TrimPrefix(key, "p1_"))
		if err == nil && PaymentRailKey(id) == key {
			intents = append(intents, id)
		}
	}
	for some := range slices.Chunk(slices.Collect(maps.Keys(rows)), maxKeyedBatches) {
		var batches [][]byte
		var asked []string
		for _, batch := range some {
			batches, asked = append(batches, batch[:]), append(asked, rows[batch]...)
		}
		var subjects []DebitSubject
		err := s.pg.Select(ctx, keyedRowsSQL, postgres.Args{"keys": asked, "batches": batches}, &subjects)
		if err != nil {
			return nil, wrap("rows of rail keys", err)
		}
		found = append(found, subjects...)
	}
	if len(intents) == 0 {
		return found, nil
	}
	var payments []DebitSubject
	err := s.pg.Select(ctx, keyedPaymentsSQL, postgres.Args{"intents": intents}, &payments)
	return append(found, payments...), wrap("payments of rail keys", err)
}

// DecidedKeys returns those of the given rail keys that belong to a row or payment about which an
// operator has decided.
func (s *Store) DecidedKeys(ctx context.Context, keys []string) (decided []string, err error) {
	err = s.pg.Select(ctx, decidedKeysSQL, postgres.Args{
		"keys": keys, "acts": []ActName{ActDecideRow, ActDecidePayment},
	}, &decided)
	return decided, wrap("decided keys", err)
}

// minRecheck and maxRecheck bound the time until a difference is checked again.
const minRecheck, maxRecheck = time.Minute, time.Hour

// RecordComparison records a step of the comparison, with its differences and their alerts. It
// returns false, and changes nothing, if another process has moved ComparedTo away from From.
func (s *Store) RecordComparison(ctx context.Context, c Comparison) (moved bool, err error) {
	n := len(c.Found)
	keys, kinds, details := make([]string, n), make([]string, n), make([]string, n)
	sites, debitedAt := make([]SiteID, n), make([]int64, n)
	for i, d := range c.Found {
		keys[i], kinds[i], sites[i] = d.RailKey, string(d.Kind), d.SiteID
		debitedAt[i], details[i] = int64(d.DebitedAt), d.Detail
	}
	if c.Resolved == nil {
		c.Resolved = []string{}
	}
	err = s.pg.Get(ctx, recordComparisonSQL, postgres.Args{
		"from": c.From, "to": c.To, "keys": keys, "kinds": kinds, "sites": sites, "debited_at": debitedAt,
		"details": details, "resolved": c.Resolved, "gap": c.Gap, "in_flight": string(DifferenceInFlight),
		"min_recheck": minRecheck.Milliseconds(), "max_recheck": maxRecheck.Milliseconds(),
	}, &moved)
	return moved, wrap("record the comparison", err)
}

// DueDifferences returns at most limit differences that are due to be checked again. A difference
// is Aged RailMemory after its debit, or after its discovery if DebitedAt is 0. DueDifferences
// leaves out Aged ones of DifferenceDenied and DifferenceParticulars: only the rail could resolve
// them.
func (s *Store) DueDifferences(ctx context.Context, limit int) (due []Difference, err error) {
	err = s.pg.Select(ctx, dueDifferencesSQL, postgres.Args{
		"rail_memory": RailMemory.Milliseconds(), "limit": limit,
		"of_rail": []DifferenceKind{DifferenceDenied, DifferenceParticulars},
	}, &due)
	return due, wrap("due differences", err)
}

// DropOldDifferences deletes at most limit differences that were found longer than auditedHistory
// ago, and returns their number. Their alerts stay.
func (s *Store) DropOldDifferences(ctx context.Context, limit int) (int, error) {
	return s.removeOld(ctx, "drop old differences", dropDifferencesSQL, auditedHistory, limit)
}
