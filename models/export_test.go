package models

import "context"

// ClaimDueSQL is for a test that looks at its plan.
var ClaimDueSQL = claimDueSQL

// ReclaimLostSQL is for a test that looks at its plan.
const ReclaimLostSQL = reclaimLostSQL

// EarlyPlanSQL are statements for a test that looks at their plans, with how many parameters each
// has.
var EarlyPlanSQL = map[string]int{claimDueSQL: 6, claimTasksSQL: 8, lockDueSQL: 2, recordDeliveredSQL: 11, figuresSQL: 3,
	openRowsSQL: 3, storedEventsSQL: 2, pendingInvitationsSQL: 1,
}

// ForceDurability has the consequences of RequireDurability on a server of tests, which does not
// flush.
func (s *Store) ForceDurability() { s.conns.durable.Store(true) }

// CondemnConnections makes the store connect anew.
func (s *Store) CondemnConnections() { s.conns.condemn() }

// NewClientIDForTest makes a fresh id.
func NewClientIDForTest() ClientID { return NewID[clientNoun]() }

// StoredEvents is the usage of the quota of events.
func StoredEvents(ctx context.Context, s *Store, organisation OrganisationID) (int64, error) {
	return s.storedEvents(ctx, organisation)
}

// QuotaSQL are the statements behind quotas with their arguments, of which the first is the
// organisation.
var QuotaSQL = map[string][]any{
	openRowsSQL: {nil, string(QueueDebits), maxQuotaCounted}, storedEventsSQL: {nil, maxQuotaCounted}, pendingInvitationsSQL: {nil},
}
