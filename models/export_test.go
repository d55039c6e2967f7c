package models

import "context"

// ClaimDueSQL is exported for a plan test.
var ClaimDueSQL = claimDueSQL.Text()

// ReclaimLostSQL is exported for a plan test.
var ReclaimLostSQL = reclaimLostSQL.Text()

// EarlyPlanSQL are statements for a plan test, with their numbers of parameters.
var EarlyPlanSQL = map[string]int{claimDueSQL.Text(): 6, claimTasksSQL.Text(): 8, lockDueSQL: 2, recordDeliveredSQL: 11,
	figuresSQL:  3,
	openRowsSQL: 3, storedEventsSQL: 2, pendingInvitationsSQL: 1,
}

// NewClientIDForTest returns a new id.
func NewClientIDForTest() ClientID { return NewID[clientNoun]() }

// StoredEvents returns the usage of the quota of events.
func StoredEvents(ctx context.Context, s *Store, organisation OrganisationID) (int64, error) {
	return s.storedEvents(ctx, organisation)
}

// QuotaSQL are the statements of quotas with their arguments. The first argument is the
// organisation.
var QuotaSQL = map[string][]any{
	openRowsSQL: {nil, string(QueueDebits), maxQuotaCounted}, storedEventsSQL: {nil,
		maxQuotaCounted}, pendingInvitationsSQL: {nil},
}
