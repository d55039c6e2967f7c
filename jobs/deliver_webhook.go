package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"partnerbilling/jobs/webhook"
	"partnerbilling/models"
	"partnerbilling/models/coalesce"
	"partnerbilling/models/logs"
	"partnerbilling/models/seal"
	"partnerbilling/models/tracing"
	"partnerbilling/queue"
)

const (
	// recordRetryDelay is the pause before a failed record is tried again.
	recordRetryDelay = 500 * time.Millisecond
	// claimInterval is the minimum time between two batches of claims of calm organisations, or of
	// busy ones. A full batch starts at once. At a steady rate the interval merges many claims into
	// one transaction, and delays an attempt a little.
	claimInterval = 3 * time.Millisecond
	// recordInterval is the minimum time between two batches of records of calm organisations. A
	// full batch starts at once.
	recordInterval = 25 * time.Millisecond
	// busyRecordInterval is recordInterval for busy organisations. It is shorter, because each of
	// their records may release a parked event.
	busyRecordInterval = 8 * time.Millisecond
	// maxReleasedClaims bounds the released tasks that a worker claims in one transaction. The
	// others are dispatched, so that workers share the events of an endpoint that gains much
	// capacity at once.
	maxReleasedClaims = 64
)

// DeliverWebhook is the job that delivers one webhook event to its endpoint. It claims the attempt
// that is due, sends the event, and records the result and the retry, if one follows. If the worker
// dies in between, the outcome of the attempt stays unknown, and the next worker sends the same
// bytes under the same id.
type DeliverWebhook struct {
	Store    *models.Store
	Keyring  *seal.Keyring
	Sender   *webhook.Sender
	Schedule webhook.Schedule
	// RunClaimed is called with the tasks of parked events that an attempt has released. It runs
	// these tasks in this process, and must not block. The tasks are claimed for
	// models.WebhookLease. If RunClaimed is nil, no released task is claimed.
	RunClaimed func([]models.Task)
	// Notify is called with the released tasks that are not claimed. They are due. It must not
	// block. If it is nil, they are dispatched when a dispatcher polls the outbox.
	Notify  func([]models.TaskID)
	Random  func() float64 // in [0, 1), for jitter; nil: math/rand/v2
	Metrics *Metrics
	Tracer  *tracing.Tracer
	Log     *slog.Logger

	running organisationCounts
	claims  webhookCoalescers[models.WebhookClaim, models.WebhookClaimed]
	records webhookCoalescers[*models.WebhookRecord, struct{}]
}

// webhookCoalescers merges the calls of busy organisations separately from those of calm ones. A
// call is calm if its organisation has at most busyAbove deliveries in this process. A batch of
// calm calls thus has at most that many of one organisation, which keeps it fast for the others.
type webhookCoalescers[A, R any] struct{ calm, busy coalesce.Coalescer[A, R] }

// of returns the coalescer for the calls of a busy or a calm organisation.
func (c *webhookCoalescers[A, R]) of(busy bool) *coalesce.Coalescer[A, R] {
	if busy {
		return &c.busy
	}
	return &c.calm
}

// NewDeliverWebhook returns the job, from the parts of cfg that concern webhooks. The API uses the
// job too, for the test webhooks of partners.
func NewDeliverWebhook(cfg Config) *DeliverWebhook {
	if len(cfg.WebhookSchedule.Delays) == 0 {
		cfg.WebhookSchedule = webhook.DefaultSchedule()
	}
	d := &DeliverWebhook{
		Store: cfg.Store, Keyring: cfg.Keyring, Sender: webhook.NewSender(webhook.Config{Targets: cfg.WebhookTargets}),
		Schedule: cfg.WebhookSchedule, Notify: cfg.Notify, RunClaimed: cfg.RunClaimed, Metrics: cfg.Metrics,
		Tracer: cfg.Tracer, Log: cfg.Log,
	}
	d.claims.calm.Call, d.claims.calm.MinInterval = d.claimMany, claimInterval
	d.claims.busy.Call, d.claims.busy.MinInterval = d.claimMany, claimInterval
	d.records.calm.Call, d.records.calm.MinInterval = d.recordMany, recordInterval
	d.records.busy.Call, d.records.busy.MinInterval = d.recordMany, busyRecordInterval
	return d
}

// DeliveryStage is a stage of a webhook's delivery.
type DeliveryStage string

// The stages of a delivery, in their order.
const (
	StageClaim   DeliveryStage = "claim"   // lease the attempt that is due
	StageSecrets DeliveryStage = "secrets" // open the organisation's signing secrets
	StageSend    DeliveryStage = "send"    // POST the event to its endpoint
	StageRecord  DeliveryStage = "record"  // write the attempt and its consequences
)

// DeliveryError is the failure of one stage of a webhook's delivery.
type DeliveryError struct {
	Stage DeliveryStage
	Err   error
}

// Error implements error.
func (e *DeliveryError) Error() string { return fmt.Sprintf("deliver webhook: %s: %v", e.Stage, e.Err) }

// Unwrap returns the cause.
func (e *DeliveryError) Unwrap() error { return e.Err }

// Run implements queue.Job. Errors wrap a *DeliveryError. After a failed attempt that has a retry,
// Run returns the error of queue.RetryAfter. A failed attempt without a retry is not an error.
func (d *DeliverWebhook) Run(ctx context.Context, task models.Task) error {
	record, err := d.deliver(ctx, task.OrganisationID, task.ID)
	switch {
	case errors.Is(err, models.ErrNothingDue):
		return nil
	case err != nil:
		return fmt.Errorf("jobs: %w", err)
	case record.Verdict.Status == models.WebhookPending:
		failure := errors.New(record.Attempt.Error) // for the log only
		return queue.RetryAfter(record.Verdict.Retry, &DeliveryError{StageSend, failure})
	default:
		return nil
	}
}

// Deliver makes the due attempt of an organisation's task at once and returns it, whether it
// succeeded or failed. Errors: models.ErrNothingDue if there is no attempt to make, such as when
// another worker is making it; *DeliveryError.
func (d *DeliverWebhook) Deliver(
	ctx context.Context, organisation models.OrganisationID, task models.TaskID,
) (models.WebhookAttempt, error) {
	record, err := d.deliver(ctx, organisation, task)
	if record == nil {
		return models.WebhookAttempt{}, err
	}
	return record.Attempt, err
}

// deliver claims, makes and records the due attempt of a task. The record is nil unless the attempt
// was made.
func (d *DeliverWebhook) deliver(
	ctx context.Context, organisation models.OrganisationID, task models.TaskID,
) (*models.WebhookRecord, error) {
	busy := d.running.begin(organisation)
	defer d.running.end(organisation)
	delivery, err := d.claim(ctx, task, busy)
	if err != nil {
		return nil, err
	}
	ctx = logs.With(models.WithTraceID(ctx, delivery.Event.TraceID),
		slog.Any(logs.SiteID, delivery.Event.SiteID), slog.Any(logs.EventID, delivery.Event.ID))
	record := d.send(ctx, delivery)
	return record, d.record(ctx, record, busy)
}

// send makes the attempt and decides what follows. It completes the attempt, which is short, even
// if the process shuts down.
func (d *DeliverWebhook) send(ctx context.Context, delivery *models.WebhookDelivery) *models.WebhookRecord {
	sending, span := d.Tracer.StartWebhook(context.WithoutCancel(ctx), delivery)
	result := d.Sender.Send(sending, webhook.Message{
		URL: delivery.URL, Event: &delivery.Event, Attempt: delivery.Number, Secrets: delivery.Secrets,
		Fresh: delivery.AfterFailure,
	})
	if span.Answered(result.StatusCode); !result.Success() {
		span.Fail(result.Failure)
	}
	span.End(nil)
	verdict := d.Schedule.Verdict(&result, delivery.Failures, delivery.Once, d.random())
	d.Metrics.webhook(verdict.Status, result.Duration)
	d.Log.InfoContext(ctx, "webhook attempt",
		"type", delivery.Event.Type, "attempt", delivery.Number,
		"status", result.StatusCode,
		"verdict", verdict.Status, "ms", result.Duration.Milliseconds(), "failure", result.Failure, "error", result.Err)
	return &models.WebhookRecord{Delivery: *delivery, Verdict: verdict, Attempt: models.WebhookAttempt{
		Number: delivery.Number, EndpointSite: delivery.EndpointSite, StartedAt: delivery.StartedAt,
		Duration: result.Duration, StatusCode: result.StatusCode, URL: delivery.URL, Address: result.Address,
		Error: result.Failure, ResponseHead: result.Head,
	}}
}

// random returns a number in [0, 1) for the jitter.
func (d *DeliverWebhook) random() float64 {
	if d.Random != nil {
		return d.Random()
	}
	return rand.Float64() //nolint:gosec // jitter, not a secret
}

// claim claims the due attempt of a task, in one database transaction with other claims. If that
// transaction fails, or finds the event or its endpoint locked, claim tries again in a transaction
// of its own, which waits for the locks. No claim can thus fail the others. If Postgres is
// unavailable, claim does not try again. It goes on after ctx has ended, since a claimed attempt
// must be sent.
func (d *DeliverWebhook) claim(
	ctx context.Context, task models.TaskID, busy bool,
) (*models.WebhookDelivery, error) {
	if err := ctx.Err(); err != nil {
		return nil, &DeliveryError{StageClaim, err}
	}
	ctx = context.WithoutCancel(ctx)
	claim := models.WebhookClaim{Task: task, Lease: models.NewLeaseToken()}
	claimed, err := d.claims.of(busy).Do(ctx, claim)
	if err != nil && !errors.Is(err, models.ErrUnavailable) || claimed.Locked {
		var alone []models.WebhookClaimed
		alone, err = d.Store.ClaimWebhooks(ctx, d.Keyring, []models.WebhookClaim{claim}, models.WaitForLocked)
		if err == nil {
			claimed = alone[0]
		}
	}
	switch {
	case err != nil:
		return nil, &DeliveryError{StageClaim, err}
	case claimed.Err != nil:
		return nil, &DeliveryError{StageSecrets, claimed.Err}
	case claimed.Locked:
		return nil, &DeliveryError{StageClaim, errEndpointChanged}
	case claimed.Delivery == nil:
		return nil, models.ErrNothingDue
	}
	return claimed.Delivery, nil
}

// errEndpointChanged says that a claim decided nothing, although it waited for the locks: the
// endpoint has changed, or another claim has just leased the event. Asynq retries the task.
var errEndpointChanged = errors.New("the endpoint changed meanwhile")

// claimMany claims attempts in one database transaction, which does not wait for locks.
func (d *DeliverWebhook) claimMany(ctx context.Context, claims []models.WebhookClaim) ([]models.WebhookClaimed, error) {
	return d.Store.ClaimWebhooks(ctx, d.Keyring, claims, models.SkipLocked)
}

// recordMany records attempts. It then runs, in this process, parked events that the records have
// released. It does not if a run was interrupted, since the process may be shutting down.
func (d *DeliverWebhook) recordMany(ctx context.Context, records []*models.WebhookRecord) ([]struct{}, error) {
	claims := maxReleasedClaims
	interrupted := slices.ContainsFunc(records, func(r *models.WebhookRecord) bool { return r.Verdict.Redispatch })
	if d.RunClaimed == nil || interrupted {
		claims = 0
	}
	claimed, due, err := d.Store.RecordWebhooks(ctx, records, claims)
	if len(claimed) > 0 {
		d.RunClaimed(claimed)
	}
	if len(due) > 0 && d.Notify != nil {
		d.Notify(due)
	}
	return make([]struct{}, len(records)), err
}

// record writes an attempt and its verdict, in one database transaction with other records. If that
// transaction fails, record writes both again in a transaction of their own: no record can fail the
// others. It goes on after ctx has ended, and retries while Postgres is unavailable, for
// recordTimeout at most. An attempt that is not recorded is made again.
func (d *DeliverWebhook) record(ctx context.Context, record *models.WebhookRecord, busy bool) error {
	// After ctx has ended, Redis does not repeat the task when the retry is due. The dispatcher
	// must then send the task again.
	record.Verdict.Redispatch = ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	for {
		_, err := d.records.of(busy).Do(context.WithoutCancel(ctx), record)
		if err != nil && !errors.Is(err, models.ErrUnavailable) {
			_, err = d.recordMany(ctx, []*models.WebhookRecord{record})
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, models.ErrUnavailable):
			return &DeliveryError{StageRecord, err}
		}
		timer := time.NewTimer(recordRetryDelay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return &DeliveryError{StageRecord, err}
		}
	}
}
