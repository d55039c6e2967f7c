package models

import (
	"cmp"
	"context"
	"fmt"

	"partnerbilling/models/postgres"
)

// The kinds of alerts, except those of Findings. AlertKinds explains them.
const (
	AlertLateTruth          = "lateTruth"
	AlertRailConflict       = "railConflict"
	AlertRailContradiction  = "railContradiction"
	AlertRailForgot         = "railForgot"
	AlertPartyUnreadable    = "partyUnreadable"
	AlertRowsUnconfirmed    = "rowsUnconfirmed"
	AlertTransactionInDoubt = "transactionInDoubt"
	AlertReconciliationGap  = "reconciliationGap"
	AlertAuditViolation     = "auditViolation"

	alertEndpointDisabled  = "webhookEndpointDisabled"
	alertWebhookFailed     = "webhookFailed"
	alertPartitionsMissing = "partitionsMissing"
)

// AlertKinds are all kinds of alerts. The comment of a kind says when its alerts are raised. The
// subject of an alert is a rail key, unless the comment names another.
var AlertKinds = []string{
	AlertLateTruth,          // the rail's answer differs from the settled outcome
	AlertRailConflict,       // the rail holds the key with another account, amount or currency
	AlertRailContradiction,  // the rail debited a transaction that has ended without a debit
	AlertRailForgot,         // the rail may have dropped the key before it reported the outcome
	AlertPartyUnreadable,    // a sealed customer cannot be opened; subject for batch rows: the batch
	AlertRowsUnconfirmed,    // rows of a batch are in doubt at their deadline; subject: the batch
	AlertTransactionInDoubt, // the rail neither reports the outcome of a payment nor cancels it
	alertEndpointDisabled,   // disabled after 24 hours of only 410 answers; subject: the endpoint
	alertWebhookFailed,      // no attempt of a webhook event is left; subject: the event

	// What the comparison of ledger and rail finds; see Findings.
	string(DifferenceUnknown), string(DifferenceUnrecorded), string(DifferenceDenied), string(DifferenceParticulars),

	AlertReconciliationGap, // the rail dropped debits before their comparison; subject: the time
	// A partition of the present or the next period is missing, or a default partition holds ids
	// that belong elsewhere; subject: the table, or the default partition.
	alertPartitionsMissing,
	AlertAuditViolation, // an audit found a broken invariant; subject: the invariant and what breaks it
}

// Alert is a condition that needs an operator's attention. It is open until it is closed; kind and
// subject identify it.
type Alert struct {
	Kind     string  // one of AlertKinds
	Subject  string  // identifies what the alert concerns; see AlertKinds
	Detail   string  // for the operator
	TraceID  TraceID // of the request that caused the condition; "": none
	RaisedAt Millis  // service time

	OrganisationID OrganisationID // zero: none
	SiteID         SiteID         // zero: none
	AcknowledgedAt Millis         // 0: no operator is looking at it
	AcknowledgedBy string         // the operator
}

// alertColumns are the columns of an Alert.
const alertColumns = `kind, subject, detail, trace_id, raised_at, organisation_id, site_id, acknowledged_at,
    acknowledged_by`

var (
	openAlertsSQL = postgres.SQL(`
SELECT ` + alertColumns + ` FROM alerts WHERE closed_at IS NULL ORDER BY raised_at LIMIT :limit`)
	acknowledgeAlertSQL = postgres.SQL(`
UPDATE alerts SET acknowledged_at = svc_now(), acknowledged_by = :by
WHERE kind = :kind AND subject = :subject AND closed_at IS NULL`)
	closeAlertSQL = postgres.SQL(`
UPDATE alerts SET closed_at = svc_now() WHERE kind = :kind AND subject = :subject AND closed_at IS NULL`)
	closeOrganisationAlertsSQL = postgres.SQL(`
UPDATE alerts SET closed_at = svc_now()
WHERE kind = :kind AND organisation_id = :organisation AND closed_at IS NULL`)
)

// OpenAlerts returns at most limit open alerts, oldest first.
func (s *Store) OpenAlerts(ctx context.Context, limit int) (alerts []Alert, err error) {
	err = s.pg.Select(ctx, openAlertsSQL, postgres.Args{"limit": limit}, &alerts)
	return alerts, wrap("open alerts", err)
}

// AcknowledgeAlert records that the operator of the context's act is looking at an open alert. It
// replaces an earlier acknowledgement. ErrNotFound: no such alert is open.
func (s *Store) AcknowledgeAlert(ctx context.Context, kind, subject string) error {
	return wrap("acknowledge alert", s.changeAlert(ctx, acknowledgeAlertSQL, postgres.Args{
		"kind": kind, "subject": subject, "by": cmp.Or(actFrom(ctx).Actor.Name, "unknown"),
	}))
}

// CloseAlert closes an alert that an operator has handled. ErrNotFound: no such alert is open.
func (s *Store) CloseAlert(ctx context.Context, kind, subject string) error {
	return wrap("close alert", s.changeAlert(ctx, closeAlertSQL, postgres.Args{"kind": kind, "subject": subject}))
}

// CloseOrganisationAlerts closes all open alerts of one kind that concern an organisation, and
// returns their number. ErrNotFound: none is open.
func (s *Store) CloseOrganisationAlerts(
	ctx context.Context, kind string, organisation OrganisationID,
) (n int, err error) {
	act := actFrom(ctx).about(SubjectAlert, kind).in(organisation, SiteID{})
	err = s.act(ctx, func(tx postgres.Tx) error {
		n, err = tx.Run(ctx, closeOrganisationAlertsSQL, postgres.Args{"kind": kind, "organisation": organisation})
		if err == nil && n == 0 {
			err = ErrNotFound
		}
		act.with("closed", n)
		return err
	})
	return n, wrap("close alerts", err)
}

// changeAlert runs a statement that changes one open alert, which args name by kind and subject.
// The context's act is recorded. ErrNotFound: no such alert is open.
func (s *Store) changeAlert(ctx context.Context, change postgres.Statement, args postgres.Args) error {
	actFrom(ctx).about(SubjectAlert, fmt.Sprint(args["kind"], " ", args["subject"]))
	return s.act(ctx, func(tx postgres.Tx) error {
		n, err := tx.Run(ctx, change, args)
		if err == nil && n == 0 {
			err = ErrNotFound
		}
		return err
	})
}

var (
	closeAlertsSQL = postgres.SQL(`
UPDATE alerts SET closed_at = svc_now() WHERE kind = :kind AND subject = ANY (:subjects::text[]) AND closed_at IS NULL`)

	raiseAlertsSQL = postgres.SQL(`
SELECT raise_alert(a.kind, a.subject, a.organisation, nullif(a.site, '00000000-0000-0000-0000-000000000000'), a.detail,
                   a.trace)
FROM unnest(:kinds::text[], :subjects::text[], :organisations::uuid[], :sites::uuid[], :details::text[],
    :traces::text[]) AS a (kind, subject, organisation, site, detail, trace)`)
)

// closeAlerts closes the open alerts of one kind about the given subjects.
func closeAlerts(ctx context.Context, tx postgres.Tx, kind string, subjects ...string) error {
	if len(subjects) == 0 {
		return nil
	}
	_, err := tx.Run(ctx, closeAlertsSQL, postgres.Args{"kind": kind, "subjects": subjects})
	return err
}

// alert is an alert to raise.
type alert struct {
	kind, subject, detail string
	organisation          OrganisationID
	site                  SiteID
	trace                 TraceID
}

// raiseAlerts opens alerts. An alert that is already open gets the new detail.
func raiseAlerts(ctx context.Context, tx postgres.Tx, alerts []alert) error {
	if len(alerts) == 0 {
		return nil
	}
	n := len(alerts)
	kinds, subjects, details, traces := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	organisations, sites := make([]OrganisationID, n), make([]SiteID, n)
	for i, a := range alerts {
		kinds[i], subjects[i], details[i], traces[i] = a.kind, a.subject, a.detail, string(a.trace)
		organisations[i], sites[i] = a.organisation, a.site
	}
	_, err := tx.Run(ctx, raiseAlertsSQL, postgres.Args{
		"kinds": kinds, "subjects": subjects, "organisations": organisations, "sites": sites, "details": details,
		"traces": traces,
	})
	return err
}
