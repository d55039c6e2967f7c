package models

import "context"

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

// OpenAlerts lists open alerts, the oldest first.
func (s *Store) OpenAlerts(ctx context.Context, limit int) ([]Alert, error) {
	var alerts []Alert
	err := s.pg.Do(ctx, func() error {
		rows, err := s.db.DB.QueryContext(ctx, `
SELECT kind, subject, detail, trace_id, raised_at FROM alerts WHERE closed_at IS NULL ORDER BY raised_at LIMIT $1`, limit)
		if err != nil {
			return err
		}
		alerts, err = scanAll(rows, func(a *Alert) []any {
			return []any{&a.Kind, &a.Subject, &a.Detail, &a.TraceID, &a.RaisedAt}
		})
		return err
	})
	return alerts, wrap("open alerts", err)
}

// CloseAlert closes an alert that an operator has handled. ErrNotFound: no such alert is open.
func (s *Store) CloseAlert(ctx context.Context, kind, subject string) error {
	n, err := s.execCount(ctx, "close alert", `
UPDATE alerts SET closed_at = svc_now() WHERE kind = $1 AND subject = $2 AND closed_at IS NULL`, kind, subject)
	if err == nil && n == 0 {
		return wrap("close alert", ErrNotFound)
	}
	return err
}
