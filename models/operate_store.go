package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"errors"
	"time"

	"partnerbilling/models/postgres"
)

// Lane is the load of one Site in one queue.
type Lane struct {
	Queue          Queue
	OrganisationID OrganisationID // zero: the service's own work
	Organisation   string         // its name
	SiteID         SiteID         // zero: the service's own work
	Site           string         // its name
	Waiting        int            // tasks that are not dispatched, at most MostCounted
	Due            int            // waiting tasks that are due, at most MostCounted
	InFlight       int            // as Backlog.InFlight, at most MostCounted
	OldestDue      Age            // how long the oldest waiting task has been due; 0: none is due
	// Recorded is the number of the Site's ledger entries of the last minute, at most mostRecorded.
	// It is 0 in every queue but QueueDebits.
	Recorded int
}

const (
	// recordedWithin is the age up to which Lane.Recorded counts ledger entries.
	recordedWithin = time.Minute
	// mostRecorded is the number at which Lane.Recorded stops counting.
	mostRecorded = 100_000
)

// PartnerBacklog is how long an organisation's oldest due task of a queue has waited.
type PartnerBacklog struct {
	Queue          Queue
	OrganisationID OrganisationID // zero: the service's own work
	OldestDue      Age            // above 0
}

// WatchedSites is the maximum number of Sites of each queue that Lanes and PartnerBacklogs look at:
// the first ones by organisation id and Site id.
const WatchedSites = 1000

// DeadLetters counts an organisation's webhook events that were not delivered, by reason. Each
// count is at most MostCounted.
type DeadLetters struct {
	OrganisationID OrganisationID
	Organisation   string // its name
	Failed         int    // with status WebhookFailed
	Undelivered    int    // with status WebhookUndelivered
	Parked         int    // pending events that wait for capacity of their endpoint
}

var (
	//go:embed lanes.sql
	lanesText string
	lanesSQL  = postgres.SQL(lanesText)

	//go:embed partner_backlogs.sql
	partnerBacklogsText string
	partnerBacklogsSQL  = postgres.SQL(partnerBacklogsText)

	//go:embed dead_letters.sql
	deadLettersText string
	deadLettersSQL  = postgres.SQL(deadLettersText)

	differencesSQL = postgres.SQL(`
SELECT rail_key, kind, site_id, coalesce(debited_at, 0) AS debited_at, detail FROM reconciliation_differences
WHERE kind = ANY (:kinds::text[]) ORDER BY found_at DESC LIMIT :limit`)
	organisationNamesSQL = postgres.SQL(`SELECT id, name, created_at FROM organisations WHERE id = ANY (:ids::uuid[])`)
)

// Lanes returns the lanes with the oldest waiting tasks, at most limit, the oldest first. It looks
// at no more than WatchedSites Sites of each queue.
func (s *Store) Lanes(ctx context.Context, limit int) (lanes []Lane, err error) {
	err = s.pg.Select(ctx, lanesSQL, postgres.Args{
		"queues": Queues, "sites": WatchedSites, "lanes": limit, "most": MostCounted, "debits": string(QueueDebits),
		"recorded_within": recordedWithin.Milliseconds(), "most_recorded": mostRecorded,
	}, &lanes)
	return lanes, wrap("lanes", err)
}

// PartnerBacklogs returns how long each organisation has waited in each of PausableQueues, the
// longest wait first. It looks at no more than WatchedSites Sites of each queue.
func (s *Store) PartnerBacklogs(ctx context.Context) (backlogs []PartnerBacklog, err error) {
	args := postgres.Args{"queues": PausableQueues, "sites": WatchedSites}
	err = s.pg.Select(ctx, partnerBacklogsSQL, args, &backlogs)
	return backlogs, wrap("backlogs of partners", err)
}

// DeadLetters returns the organisations with events that were not delivered, at most limit, those
// with the most failed events first.
func (s *Store) DeadLetters(ctx context.Context, limit int) (letters []DeadLetters, err error) {
	err = s.pg.Select(ctx, deadLettersSQL, postgres.Args{"limit": limit, "most": MostCounted}, &letters)
	return letters, wrap("dead letters", err)
}

// Differences returns the differences between the ledger and the rail that are not resolved, at
// most limit, the newest first. It leaves out debits that may still be in flight.
func (s *Store) Differences(ctx context.Context, limit int) (found []Difference, err error) {
	err = s.pg.Select(ctx, differencesSQL, postgres.Args{"kinds": Findings, "limit": limit}, &found)
	return found, wrap("differences", err)
}

// OrganisationNames returns the names of organisations. Unknown ones are left out.
func (s *Store) OrganisationNames(ctx context.Context, ids []OrganisationID) (map[OrganisationID]string, error) {
	var found []Organisation
	err := s.pg.Select(ctx, organisationNamesSQL, postgres.Args{"ids": ids}, &found)
	names := make(map[OrganisationID]string, len(found))
	for _, o := range found {
		names[o.ID] = o.Name
	}
	return names, wrap("organisation names", err)
}

// KeyedDebit is what the service knows about a rail key.
type KeyedDebit struct {
	Subject    DebitSubject // zero: no row and no payment has the key
	RecordedAt Millis       // of the ledger entry; 0: none
	Amount     Amount       // of the ledger entry
}

// IsKnown reports whether a row or a payment has the key.
func (d *KeyedDebit) IsKnown() bool { return d.Subject.RailKey != "" }

var keyedEntrySQL = postgres.SQL(`SELECT recorded_at, amount FROM ledger_entries WHERE rail_key = :key`)

// DebitOfKey returns what the service knows about a rail key. An unknown key is no error: the
// result is then zero. The key becomes the subject of the context's act.
func (s *Store) DebitOfKey(ctx context.Context, key string) (debit KeyedDebit, err error) {
	act := actFrom(ctx).about(SubjectRailKey, key)
	subjects, err := s.DebitSubjects(ctx, []string{key})
	if err != nil {
		return debit, err
	}
	if len(subjects) > 0 {
		debit.Subject = subjects[0]
		act.in(OrganisationID{}, debit.Subject.SiteID)
	}
	err = s.pg.Get(ctx, keyedEntrySQL, postgres.Args{"key": key}, &debit)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return debit, wrap("debit of a rail key", err)
}
