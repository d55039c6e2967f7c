package models

import (
	"context"

	"partnerbilling/models/postgres"
	"partnerbilling/models/postgres/explain"
)

// ClaimDueSQL is exported for a plan test.
var ClaimDueSQL = claimDueSQL.Text()

// RetryLease is how late a retry may come out of Redis.
const RetryLease = retryLease

// ReclaimLostSQL is exported for a plan test.
var ReclaimLostSQL = reclaimLostSQL.Text()

// RealNowExpr is exported for a test of its rounding.
const RealNowExpr = realNowExpr

// EarlyPlanSQL are statements for a plan test.
var EarlyPlanSQL = []postgres.Statement{
	claimDueSQL, claimTasksSQL, claimWebhooksSQL, claimTransactionSQL, recordWebhooksSQL, endpointLoadSQL,
	releaseSlotsSQL, retryTasksSQL, cancelBatchSQL, figuresSQL, openRowsSQL, storedEventsSQL, pendingInvitationsSQL,
}

// RuleSQL are statements that call functions for their rules, for a plan test.
var RuleSQL = []postgres.Statement{
	claimChunkSQL, extendRowsSQL, checkRowsSQL, recordRowsSQL, claimTransactionSQL, extendTransactionSQL,
	parkChunkSQL, cancelBatchSQL, closeBatchSQL, closeUnsentSQL, decideRowSQL, claimWebhooksSQL, recordWebhooksSQL,
	redeliverSQL,
	insertWebhookEventSQL,
	foldChangesSQL, makeNodesSQL, linkLists[""].going(""), keyedPaymentsSQL,
}

// ExplainUnderReader returns the plans of statements that pass the entries of finished work: of the
// load of the Site's endpoint, of early retries, of leases that have expired recently, and of the
// tasks that count against caps.
func ExplainUnderReader(ctx context.Context, s *Store, site Site) (map[string]explain.Plan, error) {
	plans := map[string]explain.Plan{}
	for name, q := range map[string]struct {
		statement postgres.Statement
		args      postgres.Args
	}{
		"the load of an endpoint": {endpointLoadSQL, postgres.Args{
			"organisations": []OrganisationID{site.OrganisationID}, "sites": []SiteID{site.ID},
		}},
		"expired leases":  {reclaimLostSQL, postgres.Args{"queues": Queues, "most": 10, "within": 10_000}},
		"tasks in flight": {inFlightSQL, postgres.Args{"queue": string(QueueWebhooks)}},
		"early retries":   {reclaimEarlySQL, postgres.Args{"most": 10, "lease": retryLease.Milliseconds()}},
	} {
		plan, err := explain.Run(ctx, s.db.DB, q.statement, q.args)
		if err != nil {
			return nil, err
		}
		plans[name] = plan
	}
	return plans, nil
}

// SetMaxRedelivery replaces MaxRedelivery.
func SetMaxRedelivery(s *Store, n int) { s.maxRedelivery = n }

// NewClientIDForTest returns a new id.
func NewClientIDForTest() ClientID { return NewID[clientNoun]() }

// StoredEvents returns the usage of the quota of events.
func StoredEvents(ctx context.Context, s *Store, organisation OrganisationID) (int64, error) {
	return s.storedEvents(ctx, organisation)
}

// ExplainQuotas returns the plans of the statements of quotas.
func ExplainQuotas(ctx context.Context, s *Store, organisation OrganisationID) (plans []explain.Plan, err error) {
	for _, q := range []struct {
		statement postgres.Statement
		args      postgres.Args
	}{
		{openRowsSQL, postgres.Args{
			"organisation": organisation, "queue": string(QueueDebits), "most": maxQuotaCounted,
		}},
		{storedEventsSQL, postgres.Args{"organisation": organisation, "most": maxQuotaCounted}},
		{pendingInvitationsSQL, postgres.Args{"organisation": organisation}},
	} {
		plan, err := explain.Run(ctx, s.db.DB, q.statement, q.args)
		if err != nil {
			return nil, err
		}
		plans = append(plans, plan)
	}
	return plans, nil
}

// MovementStatement is the statement behind ListMovements.
func MovementStatement(q MovementQuery) (postgres.Statement, postgres.Args) { return q.statement() }

// IntentListStatement is the statement behind ListPaymentIntents.
func IntentListStatement(q IntentQuery) (postgres.Statement, postgres.Args) { return q.statement() }

// ExplainTrace returns the plans of the statements by which Trace searches.
func ExplainTrace(ctx context.Context, s *Store, organisation OrganisationID, id TraceID) ([]explain.Plan, error) {
	prefix, _ := id.prefix()
	find, err := explain.Run(ctx, s.db.DB, findTraceSQL, findTraceArgs(organisation, id, prefix))
	if err != nil {
		return nil, err
	}
	events, err := explain.Run(ctx, s.db.DB, traceEventsSQL, traceEventsArgs(organisation, id, prefix))
	return []explain.Plan{find, events}, err
}
