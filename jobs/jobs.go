// Package jobs holds the jobs of the worker fleet: one for each kind of task.
//
// A task in Redis is a wake-up that carries an id. The job asks Postgres what to do. Conditional
// updates decide whether this worker may do it. A lost, duplicated or late task therefore changes
// only when its effect happens: the dispatcher enqueues lost tasks again.
package jobs

import (
	"log/slog"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/reconcile"
	"partnerbilling/jobs/webhook"
	"partnerbilling/models"
	"partnerbilling/models/seal"
	"partnerbilling/models/tracing"
	"partnerbilling/queue"
)

// Config configures the jobs.
type Config struct {
	Store *models.Store
	Rail  rail.Rail
	// RailConcurrency is the maximum number of concurrent rail calls of this process for rows and
	// payments; default 256. The look-ups of the reconciliation come on top. Keep it at or below
	// the Rail's own limit, so that calls for rows and payments do not queue inside the Rail.
	RailConcurrency int
	Now             func() time.Time // default time.Now
	// Keyring opens the partners' webhook secrets.
	Keyring         *seal.Keyring
	WebhookTargets  models.WebhookTargets // the addresses that webhooks may go to
	WebhookSchedule webhook.Schedule      // of retries; default webhook.DefaultSchedule
	// Notify is called with due tasks that a job has written. It must not block. If it is nil, the
	// tasks are dispatched when a dispatcher polls the outbox.
	Notify func([]models.TaskID)
	// RunClaimed runs claimed tasks in this process; see [DeliverWebhook]. It must not block.
	RunClaimed func([]models.Task)
	Metrics    *Metrics        // nil records nothing
	Tracer     *tracing.Tracer // nil records nothing
	Log        *slog.Logger
}

// New returns the jobs, by kind of task.
func New(cfg Config) queue.Jobs {
	if cfg.RailConcurrency <= 0 {
		cfg.RailConcurrency = 256
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	permits := NewPermits(cfg.RailConcurrency)
	return queue.Jobs{
		models.TaskSettleTransaction: &SettleTransaction{
			Store: cfg.Store, Rail: cfg.Rail, Permits: permits, Now: cfg.Now, Notify: cfg.Notify, Metrics: cfg.Metrics,
			Tracer: cfg.Tracer, Log: cfg.Log,
		},
		models.TaskDebitRows: &DebitRows{
			Store: cfg.Store, Rail: cfg.Rail, Permits: permits, Now: cfg.Now, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
			Log: cfg.Log,
		},
		models.TaskDeliverWebhook:       NewDeliverWebhook(cfg),
		models.TaskAnnounceBatch:        &Announce{Store: cfg.Store, Notify: cfg.Notify},
		models.TaskAnnounceRow:          &Announce{Store: cfg.Store, Notify: cfg.Notify},
		models.TaskReleaseWebhooks:      ReleaseWebhooks(cfg.Store),
		models.TaskExpireInvitations:    ExpireInvitations(cfg.Store),
		models.TaskExpirePaymentIntents: ExpirePaymentIntents(cfg.Store),
		models.TaskCloseBatches:         CloseBatches(cfg.Store),
		models.TaskWakeDebits:           &WakeDebits{Store: cfg.Store},
		models.TaskDropHistory:          DropHistory(cfg.Store),
		models.TaskMakePartitions:       MakePartitions(cfg.Store),
		models.TaskAuditBooks:           &AuditBooks{Store: cfg.Store, Now: cfg.Now, Log: cfg.Log},
		models.TaskReconcileRail: &ReconcileRail{
			Comparer: &reconcile.Comparer{Store: cfg.Store, Rail: cfg.Rail, RailConcurrency: cfg.RailConcurrency},
			Now:      cfg.Now, Metrics: cfg.Metrics, Log: cfg.Log,
		},
	}
}

// Recurring maps each recurring kind of task to the interval between its runs.
var Recurring = map[models.TaskKind]time.Duration{
	models.TaskReleaseWebhooks:      time.Second,
	models.TaskExpireInvitations:    2 * time.Second,
	models.TaskExpirePaymentIntents: time.Second,
	models.TaskCloseBatches:         time.Second,
	models.TaskDropHistory:          10 * time.Minute,
	models.TaskMakePartitions:       10 * time.Minute,
	models.TaskReconcileRail:        time.Minute,
	models.TaskAuditBooks:           time.Minute,
}
