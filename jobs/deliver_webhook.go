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
	"partnerbilling/queue"
)

// recordAgainAfter is the pause before what could not be written down is tried again.
const recordAgainAfter = 500 * time.Millisecond

// Claims and successes are written together, and at least these times lie between two transactions of each: a little of how soon an event
// arrives, and of how soon its success is known, for many fewer transactions while events come at a steady rate.
const (
	claimEvery  = 3 * time.Millisecond
	recordEvery = 25 * time.Millisecond
)

// DeliverWebhook sends one event to its endpoint: it claims the attempt that is due, makes it, and writes down what came of it
// and what follows. A worker that dies in between leaves an attempt without a known outcome; the next one sends the same
// bytes under the same key.
type DeliverWebhook struct {
	Store    *models.Store
	Keyring  *models.Keyring
	Sender   *webhook.Sender
	Schedule webhook.Schedule
	// Notify is told of events that the endpoint takes now. It must not wait. Nil: they go out when a dispatcher looks.
	Notify  func([]models.TaskID)
	Random  func() float64 // in [0, 1), for jitter; nil: math/rand/v2
	Metrics *Metrics
	Log     *slog.Logger

	claims    models.Gather[models.WebhookClaim, models.WebhookClaimed]
	successes models.Gather[models.WebhookSuccess, bool]
}

// NewDeliverWebhook makes the job, of those parts of a Config that are about webhooks. The API has one too, for tests that
// partners ask for.
func NewDeliverWebhook(cfg Config) *DeliverWebhook {
	if len(cfg.WebhookSchedule.Delays) == 0 {
		cfg.WebhookSchedule = webhook.DefaultSchedule()
	}
	d := &DeliverWebhook{
		Store: cfg.Store, Keyring: cfg.Keyring, Sender: webhook.NewSender(webhook.Config{Targets: cfg.WebhookTargets}),
		Schedule: cfg.WebhookSchedule, Notify: cfg.Notify, Metrics: cfg.Metrics, Log: cfg.Log,
	}
	d.claims.Do, d.claims.Every = d.claimMany, claimEvery
	d.successes.Do, d.successes.Every = d.recordMany, recordEvery
	return d
}

// Run handles one task. A failed attempt that will be repeated is an error that says when.
func (d *DeliverWebhook) Run(ctx context.Context, task models.Task) error {
	_, verdict, failure, err := d.attempt(ctx, task.ID)
	switch {
	case errors.Is(err, models.ErrNothingDue):
		return nil
	case err != nil:
		return fmt.Errorf("jobs: deliver webhook: %w", err)
	case verdict.Status == models.WebhookPending:
		return queue.RetryAfter(verdict.Retry, errors.New(failure)) //nolint:err113 // the partner's fault, worded already
	default:
		return nil
	}
}

// Deliver makes the attempt of a task at once, whatever it brings, and returns it. models.ErrNothingDue: another worker was
// faster.
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
	// What has begun is brought to its end, which is near, also while the process shuts down.
	result := d.Sender.Send(context.WithoutCancel(ctx), webhook.Message{
		URL: delivery.URL, Event: delivery.Event, Attempt: delivery.Number, Secrets: delivery.Secrets, Fresh: delivery.Fresh,
	})
	verdict := d.Schedule.Verdict(&result, delivery.Failures, delivery.Once, d.random())
	attempt := models.WebhookAttempt{
		Number: delivery.Number, EndpointSite: delivery.EndpointSite, StartedAt: delivery.StartedAt, Duration: result.Duration,
		StatusCode: result.StatusCode, URL: delivery.URL, Address: result.Address, Error: result.Failure, ResponseHead: result.Head,
	}
	d.Metrics.webhook(verdict.Status, result.Duration)
	d.Log.InfoContext(ctx, "webhook attempt", "event", delivery.Event.ID, "type", delivery.Event.Type, "attempt", attempt.Number, "status", attempt.StatusCode,
		"verdict", verdict.Status, "ms", result.Duration.Milliseconds(), "failure", result.Failure, "error", result.Err)
	return attempt, verdict, result.Failure, d.record(ctx, delivery, attempt, verdict)
}

func (d *DeliverWebhook) random() float64 {
	if d.Random != nil {
		return d.Random()
	}
	return rand.Float64() //nolint:gosec // jitter, not a secret
}

// claim claims an attempt together with others that are claimed now; what is not plain goes on its own. Whoever has begun to
// claim goes on also while the process shuts down: what was claimed must be sent.
func (d *DeliverWebhook) claim(ctx context.Context, task models.TaskID) (models.WebhookDelivery, error) {
	if err := ctx.Err(); err != nil {
		return models.WebhookDelivery{}, err
	}
	lease := models.NewLeaseToken()
	claimed, err := d.claims.Ask(context.WithoutCancel(ctx), models.WebhookClaim{Task: task, Lease: lease})
	switch {
	case errors.Is(err, models.ErrUnavailable):
		return models.WebhookDelivery{}, err
	case err != nil:
		d.Log.WarnContext(ctx, "claims go on one by one", "error", err)
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

// record outlives the task's own time, and a short absence of Postgres: what is not written is sent again.
func (d *DeliverWebhook) record(
	ctx context.Context, delivery models.WebhookDelivery, attempt models.WebhookAttempt, verdict models.WebhookVerdict,
) error {
	if verdict.Status == models.WebhookDelivered {
		// What could not be written together is written on its own.
		if done, err := d.successes.Ask(context.WithoutCancel(ctx), models.WebhookSuccess{Delivery: delivery, Attempt: attempt}); err == nil && done {
			return nil
		}
	}
	verdict.Anew = ctx.Err() != nil // Asynq has let go of the run, and may have looked again before there was anything to repeat
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	for {
		released, err := d.Store.RecordWebhook(ctx, delivery, attempt, verdict)
		if err == nil && len(released) > 0 && d.Notify != nil {
			d.Notify(released)
		}
		if !errors.Is(err, models.ErrUnavailable) {
			return err
		}
		timer := time.NewTimer(recordAgainAfter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// ReleaseWebhooks lets events go that wait for their endpoint to take them.
func ReleaseWebhooks(store *models.Store) *Sweep {
	step := func(ctx context.Context, _ int) (int, error) {
		_, err := store.ReleaseWebhooks(ctx) // all that there is room for, in one step
		return 0, err
	}
	return &Sweep{Store: store, Name: "release webhooks", Steps: []func(context.Context, int) (int, error){step}}
}
