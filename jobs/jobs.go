// Package jobs holds what the worker fleet does: one file a kind of task.
//
// A task is a wake-up that carries an id. What there is to do, and whether this worker may do it, the job asks Postgres, by
// conditional updates whose affected rows it checks. So a task may be lost, doubled, or come late, and nothing changes
// but time.
package jobs

import (
	"log/slog"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/webhook"
	"partnerbilling/models"
	"partnerbilling/queue"
)

// Config is what the jobs work with.
type Config struct {
	Store *models.Store
	Rail  rail.Rail
	// RailConcurrency bounds the rail calls that this process has under way; default 256. A call waits for nothing more once it has
	// begun if the Rail takes as many.
	RailConcurrency int
	Now             func() time.Time // default time.Now
	// Keyring opens the partners' webhook secrets.
	Keyring         *models.Keyring
	WebhookTargets  models.WebhookTargets
	WebhookSchedule webhook.Schedule // default webhook.DefaultSchedule
	// Notify is told of tasks that may start at once. It must not wait. Nil: they start when a dispatcher looks.
	Notify  func([]models.TaskID)
	Metrics *Metrics // nil counts nothing
	Log     *slog.Logger
}

// New makes the job of every kind of task.
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
			Store: cfg.Store, Rail: cfg.Rail, Permits: permits, Now: cfg.Now, Notify: cfg.Notify, Metrics: cfg.Metrics, Log: cfg.Log,
		},
		models.TaskDebitRows: &DebitRows{
			Store: cfg.Store, Rail: cfg.Rail, Permits: permits, Now: cfg.Now, Metrics: cfg.Metrics, Log: cfg.Log,
		},
		models.TaskDeliverWebhook:       NewDeliverWebhook(cfg),
		models.TaskAnnounceBatch:        &Announce{Store: cfg.Store, Notify: cfg.Notify},
		models.TaskAnnounceRow:          &Announce{Store: cfg.Store, Notify: cfg.Notify},
		models.TaskReleaseWebhooks:      ReleaseWebhooks(cfg.Store),
		models.TaskExpireInvitations:    ExpireInvitations(cfg.Store),
		models.TaskExpirePaymentIntents: ExpirePaymentIntents(cfg.Store),
		models.TaskCloseBatches:         CloseBatches(cfg.Store),
		models.TaskDropHistory:          DropHistory(cfg.Store),
	}
}

// Recurring says which work starts by itself, and how often.
var Recurring = map[models.TaskKind]time.Duration{
	models.TaskReleaseWebhooks:      time.Second,
	models.TaskExpireInvitations:    2 * time.Second,
	models.TaskExpirePaymentIntents: time.Second,
	models.TaskCloseBatches:         time.Second,
	models.TaskDropHistory:          10 * time.Minute,
}
