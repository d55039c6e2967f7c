package models

import (
	"cmp"
	"context"
	"fmt"

	"partnerbilling/models/postgres"
)

// Kinds of alerts. Each needs a decision that the service cannot take. AlertKinds explains them,
// and names those that only statements raise.
const (
	AlertRailConflict      = "railConflict"
	AlertRailForgot        = "railForgot"
	AlertPartyUnreadable   = "partyUnreadable"
	AlertReconciliationGap = "reconciliationGap"
	AlertAuditViolation    = "auditViolation"

	alertEndpointDisabled  = "webhookEndpointDisabled"
	alertWebhookFailed     = "webhookFailed"
	alertPartitionsMissing = "partitionsMissing"
)

// AlertKinds are all kinds of alerts.
var AlertKinds = []string{
	"lateTruth",           // the rail's answer differs from the settled outcome; subject: the rail key
	AlertRailConflict,     // the rail holds the key with another account, amount or currency; subject: the rail key
	"railContradiction",   // the rail debited a transaction that has ended without a debit; subject: the rail key
	AlertRailForgot,       // the rail may have dropped the key before it reported the outcome; subject: the rail key
	AlertPartyUnreadable,  // a sealed customer cannot be opened; subject: the batch, or a payment's rail key
	"rowsUnconfirmed",     // rows of a batch are still in doubt at their deadline; subject: the batch
	"transactionInDoubt",  // the rail neither reports the outcome of a payment nor cancels it; subject: the rail key
	alertEndpointDisabled, // the endpoint answered only 410 for 24 hours; subject: organisation and Site
	alertWebhookFailed,    // no attempt is left; subject: the event

	// What the comparison of ledger and rail finds; subject: the rail key.
	string(DifferenceUnknown), string(DifferenceUnrecorded), string(DifferenceDenied), string(DifferenceParticulars),

	AlertReconciliationGap, // the rail has dropped debits before they were compared; subject: the time
	alertPartitionsMissing, // no partition is ready for new ids; subject: the table
	AlertAuditViolation,    // an audit found a broken invariant; subject: the invariant and what breaks it
}

// Alert is a condition that needs an operator's attention.
type Alert struct {
	Kind     string // one of AlertKinds
	Subject  string // the row, batch, payment or endpoint concerned
	Detail   string
	TraceID  TraceID // of the request that caused it
	RaisedAt Millis

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
	closeAlertsOfSQL = postgres.SQL(`
UPDATE alerts SET closed_at = svc_now()
WHERE kind = :kind AND organisation_id = :organisation AND closed_at IS NULL`)
)

// OpenAlerts returns at most limit open alerts, oldest first.
func (s *Store) OpenAlerts(ctx context.Context, limit int) (alerts []Alert, err error) {
	err = s.pg.Select(ctx, openAlertsSQL, postgres.Args{"limit": limit}, &alerts)
	return alerts, wrap("open alerts", err)
}

// AcknowledgeAlert records that the act's operator is looking at an alert. It replaces an earlier
// acknowledgement. ErrNotFound: no such alert is open.
func (s *Store) AcknowledgeAlert(ctx context.Context, kind, subject string) error {
	return wrap("acknowledge alert", s.changeAlert(ctx, acknowledgeAlertSQL, postgres.Args{
		"kind": kind, "subject": subject, "by": cmp.Or(actFrom(ctx).Actor.Name, "unknown"),
	}))
}

// CloseAlert closes an alert that an operator has handled. ErrNotFound: no such alert is open.
func (s *Store) CloseAlert(ctx context.Context, kind, subject string) error {
	return wrap("close alert", s.changeAlert(ctx, closeAlertSQL, postgres.Args{"kind": kind, "subject": subject}))
}

// CloseAlertsOf closes all alerts of a kind and an organisation, and returns their number.
// ErrNotFound: none is open.
func (s *Store) CloseAlertsOf(ctx context.Context, kind string, organisation OrganisationID) (n int, err error) {
	act := actFrom(ctx).about(SubjectAlert, kind).in(organisation, SiteID{})
	err = s.act(ctx, func(tx postgres.Tx) error {
		n, err = tx.Run(ctx, closeAlertsOfSQL, postgres.Args{"kind": kind, "organisation": organisation})
		if err == nil && n == 0 {
			err = ErrNotFound
		}
		act.with("closed", n)
		return err
	})
	return n, wrap("close alerts", err)
}

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

// closeAlerts closes the open alerts of a kind about subjects.
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

// raiseAlerts opens alerts, or updates those that are open.
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
