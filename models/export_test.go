package models

// ClaimDueSQL is for a test that looks at its plan.
const ClaimDueSQL = claimDueSQL

// ReclaimLostSQL is for a test that looks at its plan.
const ReclaimLostSQL = reclaimLostSQL

// EarlyPlanSQL are statements for a test that looks at their plans, with how many parameters each has.
var EarlyPlanSQL = map[string]int{claimDueSQL: 6, claimTasksSQL: 8, lockDueSQL: 2, recordDeliveredSQL: 11, figuresSQL: 3}

// ForceDurability has the consequences of RequireDurability on a server of tests, which does not flush.
func (s *Store) ForceDurability() { s.conns.durable.Store(true) }

// CondemnConnections makes the store connect anew.
func (s *Store) CondemnConnections() { s.conns.condemn() }
