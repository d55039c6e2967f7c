package models

import (
	"context"
	"fmt"
	"time"
)

const day = 24 * time.Hour

// days writes a duration in whole days.
func days(d time.Duration) string { return fmt.Sprintf("%d days", d/day) }

// hours writes a duration in whole hours.
func hours(d time.Duration) string { return fmt.Sprintf("%d hours", d/time.Hour) }

// Retention holds the periods of retention that a deployment chooses.
type Retention struct {
	Payments    time.Duration // payment intents with their transactions, from their final status
	Webhooks    time.Duration // ended webhook events with their attempts, from the last request for delivery
	Links       time.Duration // customer and agreement of a customer link, from its revocation
	Alerts      time.Duration // closed alerts, from their closing
	SandboxRail time.Duration // keys of the sandbox rail, from their decision
}

// DefaultRetention is the retention of a Store until SetRetention.
var DefaultRetention = Retention{
	Payments: 400 * day, Webhooks: 400 * day, Links: 400 * day, Alerts: 90 * day, SandboxRail: 90 * day,
}

// MinRetention is the shortest retention that may be configured. Rows of a batch may need their
// customer links while the batch exists. A webhook may be retried for 53 days: for 5 waits of at
// most a week, each up to half longer by jitter. Audits compare payments, events, ledger and rail
// up to auditedHistory.
var MinRetention = Retention{
	Payments: 90 * day, Webhooks: 90 * day, Links: BatchRetention, Alerts: day, SandboxRail: auditedHistory,
}

// MaxRetention is the longest period that may be configured.
const MaxRetention = 36_500 * day

// auditedHistory is the age up to which audits compare tables that have different retention. It
// exceeds RailMemory.
const auditedHistory = 30 * day

// SetRetention changes how long data is kept. It must precede every other call.
func (s *Store) SetRetention(r Retention) { s.retention = r }

// A retentionStep removes at most limit items, or one partition, in one transaction. It uses an
// index and skips what is locked. A result below limit says that nothing more can be removed now.
type retentionStep func(s *Store, ctx context.Context, limit int) (int, error)

// TableRetention says what is removed from one table and when, and what is kept for ever.
type TableRetention struct {
	Table   string
	Removes string // what is removed; "": nothing
	After   string // how long it is kept before that; the default if there is a Setting
	Setting string // the variable of the configuration that sets the time; "": it is fixed
	Keeps   string // what is kept for ever, and why; "": nothing
	By      string // the method of Store that removes it; "": none
	step    retentionStep
}

// retention has a row for each table of the database. A test compares it with the catalogue.
var retention = []TableRetention{
	{
		Table: "batches", Removes: "settled batches without a row in doubt",
		After: days(BatchRetention) + " from submission",
		By:    "DropOldBatches", step: (*Store).DropOldBatches,
	},
	{
		Table: "batch_rows", Removes: "the rows of removed batches", After: "with the week of the batch",
		By: "DropOldPartitions", step: (*Store).DropOldPartitions,
	},
	{
		Table: "payment_intents", Removes: "final payment intents with their transactions",
		After:   days(DefaultRetention.Payments),
		Setting: "SVC_RETENTION_PAYMENTS", By: "DropOldPaymentIntents", step: (*Store).DropOldPaymentIntents,
	},
	{
		Table: "webhook_events", Removes: "ended events",
		After: days(DefaultRetention.Webhooks) +
			" from the last request for delivery, with the month of the subject",
		Setting: "SVC_RETENTION_WEBHOOKS", By: "DropOldWebhookEvents", step: (*Store).DropOldWebhookEvents,
	},
	{
		Table: "webhook_attempts", Removes: "the attempts of removed events", After: "as their event",
		By: "DropOldWebhookEvents",
	},
	{Table: "webhook_slots", Removes: "the slots of ended events", After: "until the event ends", By: "RecordWebhooks"},
	{
		Table: "customer_links", Removes: "customer and agreement of revoked links",
		After:   days(DefaultRetention.Links) + " from revocation",
		Setting: "SVC_RETENTION_LINKS", By: "ForgetOldParties", step: (*Store).ForgetOldParties,
		Keeps: "the link with its customerReference: lists, their totals and movements show it",
	},
	{
		Table: "alerts", Removes: "closed alerts",
		After: days(DefaultRetention.Alerts) + " from closing", Setting: "SVC_RETENTION_ALERTS",
		By: "DropClosedAlerts", step: (*Store).DropClosedAlerts,
	},
	{
		Table: "idempotency_keys", Removes: "all", After: hours(IdempotencyKeyLife),
		By: "PurgeIdempotencyKeys", step: (*Store).PurgeIdempotencyKeys,
	},
	{
		Table: "client_assertions", Removes: "all", After: "until the assertion expires", By: "DropExpiredAssertions",
		step: (*Store).DropExpiredAssertions,
	},
	{
		Table: "sandbox_debits", Removes: "decided keys",
		After:   days(DefaultRetention.SandboxRail) + " from the decision",
		Setting: "SVC_RETENTION_SANDBOX_RAIL", By: "DropOldSandboxDebits", step: (*Store).DropOldSandboxDebits,
	},
	{Table: "sandbox_accounts", Keeps: "accounts: an agreement may be debited at any time"},
	{Table: "sandbox_faults", Keeps: "one row for each fault"},
	{Table: "outbox", Removes: "finished tasks", After: "until the task is done", By: "FinishTask"},
	{Table: "debit_pauses", Removes: "ended pauses", After: "until an operator resumes the debits", By: "ResumeDebits"},
	{Table: "queue_pauses", Removes: "ended pauses", After: "until an operator resumes the queue", By: "ResumeQueue"},
	{Table: "recurring_work", Keeps: "one row for each recurring task"},
	{Table: "link_changes", Removes: "all", After: "until the next fold into totals", By: "FoldLinkChanges"},
	{Table: "link_totals", Keeps: "the totals of customer lists"},
	{Table: "reconciliation", Keeps: "one row"},
	{Table: "audit_pass", Keeps: "one row"},
	{Table: "rail_minutes", Removes: "counts of the rail's answers", After: "1 hour", By: "RecordRailAnswers"},
	{
		Table: "reconciliation_differences", Removes: "resolved differences; others after their period",
		After: days(auditedHistory) + " from their discovery",
		By:    "DropOldDifferences", step: (*Store).DropOldDifferences,
	},
	{
		Table: "batch_references",
		Keeps: "generations: with them, a reference that is used again gets new rail keys",
	},
	{Table: "ledger_entries", Keeps: "the ledger: it records every movement of money"},
	{Table: "organisations", Keeps: "partners: ledger and Sites refer to them"},
	{Table: "sites", Keeps: "Sites: the ledger refers to them"},
	{Table: "api_clients", Keeps: "clients: an operator disables them"},
	{
		Table: "client_secrets", Removes: "removed secrets", After: "until an operator removes them",
		By: "RemoveClientSecret",
	},
	{Table: "credential_uses", Keeps: "the last use of each secret and key; each rotation adds a row"},
	{Table: "audit_log", Keeps: "the audit log: it is append-only"},
	{Table: "service_keys", Keeps: "keys, retired ones too: each sign-up link names its key; each rotation adds a row"},
	{
		Table: "webhook_endpoints", Removes: "deleted endpoints", After: "until the partner deletes them",
		By: "DeleteWebhookEndpoint",
	},
	{Table: "webhook_secrets", Keeps: "secrets, retired ones too; each rotation adds a row"},
	{Table: "service_clock", Keeps: "one row"},
	{Table: "deployment", Keeps: "one row"},
	{Table: "database_epoch", Keeps: "one row"},
	{Table: "schema_migrations", Keeps: "one row for each migration"},
}

// TableRetentions returns the retention of every table of the database.
func TableRetentions() []TableRetention { return append([]TableRetention(nil), retention...) }

// RetentionSteps returns the steps of the sweep that removes data past its retention. Each removes
// at most limit items, or one partition, in one transaction. A result below limit says that nothing
// more can be removed now.
func (s *Store) RetentionSteps() (steps []func(ctx context.Context, limit int) (int, error)) {
	for _, r := range retention {
		if r.step != nil {
			steps = append(steps, func(ctx context.Context, limit int) (int, error) { return r.step(s, ctx, limit) })
		}
	}
	return steps
}
