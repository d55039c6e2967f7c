package models

import (
	"context"

	"partnerbilling/models/postgres"
)

// The kinds of alerts that workers raise. Each needs a decision that the service cannot take.
const (
	AlertRailConflict = "railConflict"
	AlertRailForgot   = "railForgot"
)

// AlertKinds are the kinds of alerts that are raised.
var AlertKinds = []string{
	"lateTruth",           // late truth: the rail's answer differs from the settled outcome; subject: the rail key
	AlertRailConflict,     // the rail holds the key with another account, amount or currency; subject: the rail key
	"railContradiction",   // the rail debited a transaction that has ended without a debit; subject: the rail key
	AlertRailForgot,       // the rail may have dropped the key before it reported the outcome; subject: the rail key
	"rowsUnconfirmed",     // rows of a batch are still in doubt at their deadline; subject: the batch
	"transactionInDoubt",  // the rail neither reports the outcome of a payment nor cancels it; subject: the rail key
	alertEndpointDisabled, // the endpoint answered only 410 for 24 hours; subject: organisation and Site
	alertWebhookFailed,    // no attempt is left; subject: the event
}

// Alert is a condition that needs an operator's attention.
type Alert struct {
	Kind     string // one of AlertKinds
	Subject  string // the row, batch, payment or endpoint concerned
	Detail   string
	TraceID  TraceID // of the request that caused it
	RaisedAt Millis
}

var (
	openAlertsSQL = postgres.SQL(`
SELECT kind, subject, detail, trace_id, raised_at FROM alerts WHERE closed_at IS NULL ORDER BY raised_at LIMIT :limit`)
	closeAlertSQL = postgres.SQL(`
UPDATE alerts SET closed_at = svc_now() WHERE kind = :kind AND subject = :subject AND closed_at IS NULL`)
)

// OpenAlerts lists open alerts, the oldest first.
func (s *Store) OpenAlerts(ctx context.Context, limit int) (alerts []Alert, err error) {
	err = s.pg.Select(ctx, openAlertsSQL, postgres.Args{"limit": limit}, &alerts)
	return alerts, wrap("open alerts", err)
}

// CloseAlert closes an alert that an operator has handled. ErrNotFound: no such alert is open.
func (s *Store) CloseAlert(ctx context.Context, kind, subject string) error {
	n, err := s.pg.Run(ctx, closeAlertSQL, postgres.Args{"kind": kind, "subject": subject})
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	return wrap("close alert", err)
}
