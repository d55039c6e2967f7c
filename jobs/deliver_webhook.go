package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"partnerbilling/jobs/webhook"
	"partnerbilling/models"
	"partnerbilling/models/coalesce"
	"partnerbilling/models/seal"
	"partnerbilling/queue"
)

const (
	// recordRetryDelay is the pause before a failed record is tried again.
	recordRetryDelay = 500 * time.Millisecond
	// claimInterval is the minimum time between two transactions that claim attempts. At a steady
	// rate it merges many claims into one transaction, and delays an attempt a little.
	claimInterval = 3 * time.Millisecond
	// recordInterval is claimInterval for the records of successful attempts.
	recordInterval = 25 * time.Millisecond
)

// DeliverWebhook delivers one webhook event to its endpoint. It claims the attempt that is due,
// makes it, and records the result and the retry, if one follows. If a worker dies in between, the
// outcome of the attempt stays unknown, and the next worker sends the same bytes under the same id.
type DeliverWebhook struct {
	Store    *models.Store
	Keyring  *seal.Keyring
	Sender   *webhook.Sender
	Schedule webhook.Schedule
	// Notify is called with the tasks of parked events that an attempt has released. It must not
	// block. If it is nil, they are dispatched when a dispatcher polls.
	Notify  func([]models.TaskID)
	Random  func() float64 // in [0, 1), for jitter; nil: math/rand/v2
	Metrics *Metrics
	Log     *slog.Logger

	claims    coalesce.Coalescer[models.WebhookClaim, models.WebhookClaimed]
	successes coalesce.Coalescer[models.WebhookSuccess, bool]
}

// NewDeliverWebhook returns the job, from the parts of cfg that concern webhooks. The API uses it
// too, for the test webhooks of partners.
func NewDeliverWebhook(cfg Config) *DeliverWebhook {
	if len(cfg.WebhookSchedule.Delays) == 0 {
		cfg.WebhookSchedule = webhook.DefaultSchedule()
	}
	d := &DeliverWebhook{
		Store: cfg.Store, Keyring: cfg.Keyring, Sender: webhook.NewSender(webhook.Config{Targets: cfg.WebhookTargets}),
		Schedule: cfg.WebhookSchedule, Notify: cfg.Notify, Metrics: cfg.Metrics, Log: cfg.Log,
	}
	d.claims.Call, d.claims.MinInterval = d.claimMany, claimInterval
	d.successes.Call, d.successes.MinInterval = d.recordMany, recordInterval
	return d
}

// Run implements queue.Job. A failed attempt with a retry returns the error of queue.RetryAfter.
func (d *DeliverWebhook) Run(ctx context.Context, task models.Task) error {
	_, verdict, failure, err := d.attempt(ctx, task.ID)
	switch {
	case errors.Is(err, models.ErrNothingDue):
		return nil
	case err != nil:
		return fmt.Errorf("jobs: deliver webhook: %w", err)
	case verdict.Status == models.WebhookPending:
		return queue.RetryAfter(verdict.Retry, errors.New(failure)) // for the log only
	default:
		return nil
	}
}

// Deliver makes the attempt of a task at once and returns it, whether it succeeded or failed. It
// returns models.ErrNothingDue if another worker has made the attempt.
func (d *DeliverWebhook) Deliver(ctx context.Context, task models.TaskID) (models.WebhookAttempt, error) {
	attempt, _, _, err := d.attempt(ctx, task)
	return attempt, err
}

func (d *DeliverWebhook) attempt(
	ctx context.Context, task models.TaskID,
) (models.WebhookAttempt, models.WebhookVerdict, string, error) {
	delivery, err := d.claim(ctx, task)
	if err != nil {
		return models.WebhookAttempt{}, models.WebhookVerdict{}, "", err
	}
	ctx = models.WithTraceID(ctx, delivery.Event.TraceID)
	// An attempt is short. It is completed even if the process shuts down.
	result := d.Sender.Send(context.WithoutCancel(ctx), webhook.Message{
		URL: delivery.URL, Event: delivery.Event, Attempt: delivery.Number, Secrets: delivery.Secrets,
		Fresh: delivery.Fresh,
	})
	verdict := d.Schedule.Verdict(&result, delivery.Failures, delivery.Once, d.random())
	attempt := models.WebhookAttempt{
		Number: delivery.Number, EndpointSite: delivery.EndpointSite, StartedAt: delivery.StartedAt,
		Duration:   result.Duration,
		StatusCode: result.StatusCode, URL: delivery.URL, Address: result.Address, Error: result.Failure,
		ResponseHead: result.Head,
	}
	d.Metrics.webhook(verdict.Status, result.Duration)
	d.Log.InfoContext(ctx, "webhook attempt",
		"event", delivery.Event.ID, "type", delivery.Event.Type, "attempt", attempt.Number,
		"status", attempt.StatusCode,
		"verdict", verdict.Status, "ms", result.Duration.Milliseconds(), "failure", result.Failure, "error", result.Err)
	return attempt, verdict, result.Failure, d.record(ctx, delivery, attempt, verdict)
}

func (d *DeliverWebhook) random() float64 {
	if d.Random != nil {
		return d.Random()
	}
	return rand.Float64() //nolint:gosec // jitter, not a secret
}

// claim claims an attempt, in one transaction with other claims if possible, else in its own. It
// goes on after ctx has ended, since a claimed attempt must be sent.
func (d *DeliverWebhook) claim(ctx context.Context, task models.TaskID) (models.WebhookDelivery, error) {
	if err := ctx.Err(); err != nil {
		return models.WebhookDelivery{}, err
	}
	lease := models.NewLeaseToken()
	claimed, err := d.claims.Do(context.WithoutCancel(ctx), models.WebhookClaim{Task: task, Lease: lease})
	switch {
	case errors.Is(err, models.ErrUnavailable):
		return models.WebhookDelivery{}, err
	case err != nil:
		d.Log.WarnContext(ctx, "cannot claim webhooks together; each is claimed alone", "error", err)
	case claimed.Delivery != nil:
		return *claimed.Delivery, nil
	case claimed.Parked:
		return models.WebhookDelivery{}, models.ErrNothingDue
	}
	return d.Store.ClaimWebhook(ctx, d.Keyring, task, lease)
}

func (d *DeliverWebhook) claimMany(ctx context.Context, claims []models.WebhookClaim) ([]models.WebhookClaimed, error) {
	return d.Store.ClaimWebhooks(ctx, d.Keyring, claims)
}

func (d *DeliverWebhook) recordMany(ctx context.Context, successes []models.WebhookSuccess) ([]bool, error) {
	done, released, err := d.Store.RecordDelivered(ctx, successes)
	for _, tasks := range released {
		if d.Notify != nil {
			d.Notify(tasks)
		}
	}
	return done, err
}

// record writes the attempt and its verdict. It goes on after ctx has ended, and retries while
// Postgres is unavailable, for recordTimeout at most. An attempt that is not recorded is made
// again.
func (d *DeliverWebhook) record(
	ctx context.Context, delivery models.WebhookDelivery, attempt models.WebhookAttempt, verdict models.WebhookVerdict,
) error {
	if verdict.Status == models.WebhookDelivered {
		success := models.WebhookSuccess{Delivery: delivery, Attempt: attempt}
		if done, err := d.successes.Do(context.WithoutCancel(ctx), success); err == nil && done {
			return nil
		}
	}
	verdict.Anew = ctx.Err() != nil // Asynq has requeued the task, and may run it before the retry is recorded
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	for {
		released, err := d.Store.RecordWebhook(ctx, delivery, attempt, verdict)
		if err == nil && len(released) > 0 && d.Notify != nil {
			d.Notify(released)
		}
		if !errors.Is(err, models.ErrUnavailable) {
			return err
		}
		timer := time.NewTimer(recordRetryDelay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// ReleaseWebhooks returns the sweep that releases parked events whose endpoint can take them.
func ReleaseWebhooks(store *models.Store) *Sweep {
	step := func(ctx context.Context, _ int) (int, error) {
		_, err := store.ReleaseWebhooks(ctx) // releases all that the bounds allow in one step
		return 0, err
	}
	return &Sweep{Store: store, Name: "release webhooks", Steps: []func(context.Context, int) (int, error){step}}
}
