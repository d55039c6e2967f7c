package models

import "context"

// The kinds of alerts that workers raise. An operator must decide: the service cannot know.
const (
	AlertRailConflict = "railConflict"
	AlertRailForgot   = "railForgot"
)

// AlertKinds are the kinds of alerts that are raised.
var AlertKinds = []string{
	"lateTruth",           // a row was settled otherwise before the rail told the truth; subject: the rail key
	AlertRailConflict,     // the rail holds the key with another account, amount or currency; subject: the rail key
	"railContradiction",   // money was taken for a transaction that has ended without; subject: the rail key
	AlertRailForgot,       // the rail may have forgotten the key before it told the outcome; subject: the rail key
	"rowsUnconfirmed",     // the rail had not said of a batch's rows, when their deadline came, what became of them; subject: the batch
	"transactionInDoubt",  // the rail neither says what became of a payment nor cancels it; subject: the rail key
	alertEndpointDisabled, // 24 hours of nothing but 410; subject: organisation and Site
	alertWebhookFailed,    // no attempt is left; subject: the event
}

// Alert is something that an operator must look at.
type Alert struct {
	Kind     string // what happened: one of AlertKinds
	Subject  string // to whom
	Detail   string
	TraceID  TraceID // of the request that began it
	RaisedAt Millis
}

// OpenAlerts lists alerts that nobody has closed, the oldest first.
func (s *Store) OpenAlerts(ctx context.Context, limit int) ([]Alert, error) {
	var alerts []Alert
	err := s.statement(ctx, func() error {
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

// CloseAlert takes an alert off the list: somebody has dealt with it. ErrNotFound: no such alert is open.
func (s *Store) CloseAlert(ctx context.Context, kind, subject string) error {
	n, err := s.execCount(ctx, "close alert", `
UPDATE alerts SET closed_at = svc_now() WHERE kind = $1 AND subject = $2 AND closed_at IS NULL`, kind, subject)
	if err == nil && n == 0 {
		return wrap("close alert", ErrNotFound)
	}
	return err
}
