// Package queue carries the outbox's tasks to the worker fleet over Asynq.
//
// Postgres says what there is to do (models.Task); Redis only spreads it. The Dispatcher takes due tasks from the outbox,
// fairly between organisations, and enqueues them; the Server runs a Job for each that it fetches. A task in Redis carries
// an id and nothing else.
package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hibiken/asynq"

	"partnerbilling/models"
)

// Job does the work of one kind of task. It returns an error only if the run failed as a whole; the task then comes again.
type Job interface {
	Run(ctx context.Context, task models.Task) error
}

// Jobs are the jobs by kind.
type Jobs map[models.TaskKind]Job

// weights are how often a worker looks first at each of the queues that share its slots, of all its looks. Checkout and webhooks
// have slots of their own.
var weights = map[models.Queue]int{
	models.QueueDebits: 6,
	models.QueueSweeps: 2,
}

// Names lists the queues.
func Names() []models.Queue {
	return []models.Queue{models.QueueCheckout, models.QueueDebits, models.QueueWebhooks, models.QueueSweeps}
}

const (
	// taskTimeout ends a run's context. It is far above what any chunk needs, and in whole seconds, since Asynq reads
	// anything below one as "none".
	taskTimeout = 2 * time.Minute
	// maxRetry is how often Asynq itself repeats a failed run; after that the outbox's own lease brings the task back.
	maxRetry = 3
	// maxWebhookRetry is how often Asynq repeats a webhook: the retries that partners were promised. What counts is
	// Postgres, which says when an event has failed, and whether an attempt is due when Asynq brings one.
	maxWebhookRetry = 5
)

func maxRetryOf(kind models.TaskKind) int {
	if kind == models.TaskDeliverWebhook {
		return maxWebhookRetry
	}
	return maxRetry
}

// retry is a failure whose job has decided when the task comes again.
type retry struct {
	after time.Duration
	cause error
}

func (r *retry) Error() string { return fmt.Sprintf("%v; again in %s", r.cause, r.after) }

func (r *retry) Unwrap() error { return r.cause }

// RetryAfter makes the error of a run that failed as it may, and that Asynq repeats after d: the job has written that down
// already. It shows in the dashboard as a retry, and in the log as no fault of ours.
func RetryAfter(d time.Duration, cause error) error { return &retry{d, cause} }

const (
	// traceHeader carries the trace id of the request that caused a task.
	traceHeader = "traceId"
	// organisationHeader and rowsHeader say whose a task is and how many rows it has, for taking turns. What a task does
	// depends on what Postgres says alone.
	organisationHeader = "organisationId"
	rowsHeader         = "rows"
)

func withTrace(ctx context.Context, t *asynq.Task) context.Context {
	return models.WithTraceID(ctx, models.TraceID(t.Headers()[traceHeader]))
}

// newTask is a task as Asynq carries it. The epoch makes the name of each dispatch its own, so that a leftover of an earlier
// one in Redis cannot swallow it.
func newTask(t models.Task) *asynq.Task {
	headers := map[string]string{
		traceHeader: string(t.TraceID), organisationHeader: t.OrganisationID.String(), rowsHeader: strconv.Itoa(t.Rows),
	}
	return asynq.NewTaskWithHeaders(string(t.Kind), []byte(t.ID.String()), headers,
		asynq.Queue(string(t.Kind.Queue())),
		asynq.TaskID(fmt.Sprintf("%s:%s:e%d", t.Kind, t.ID, t.Epoch)),
		asynq.MaxRetry(maxRetryOf(t.Kind)), asynq.Timeout(taskTimeout))
}

// readTask is the task that Asynq carried: kind, id and, as far as the headers say it, organisation and rows.
func readTask(t *asynq.Task) (models.Task, error) {
	task := models.Task{Kind: models.TaskKind(t.Type())}
	if err := task.ID.UnmarshalText(t.Payload()); err != nil {
		return task, fmt.Errorf("%w: %w", errUnknownTask, err)
	}
	if text := t.Headers()[organisationHeader]; text != "" {
		if err := task.OrganisationID.UnmarshalText([]byte(text)); err != nil {
			return task, fmt.Errorf("%w: %w", errUnknownTask, err)
		}
	}
	task.Rows, _ = strconv.Atoi(t.Headers()[rowsHeader]) // 0 if it is not said
	return task, nil
}

// errUnknownTask fails a task that no job of this binary knows, without another try: a newer binary's worker gets it when
// the outbox sends it again.
var errUnknownTask = fmt.Errorf("queue: unknown task: %w", asynq.SkipRetry)

// ProcessTask runs the job of a fetched task.
func (j Jobs) ProcessTask(ctx context.Context, t *asynq.Task) error {
	job, ok := j[models.TaskKind(t.Type())]
	if !ok {
		return fmt.Errorf("%w: kind %q", errUnknownTask, t.Type())
	}
	task, err := readTask(t)
	if err != nil {
		return err
	}
	return job.Run(withTrace(ctx, t), task)
}

// retryAfter is Asynq's wait before its n-th repetition of a failed run.
func retryAfter(n int, err error, _ *asynq.Task) time.Duration {
	var planned *retry
	if errors.As(err, &planned) {
		return planned.after
	}
	return min(time.Second<<min(n, 4), 10*time.Second)
}

// isFailure tells Asynq which errors count as failures in its figures: not those of a shutdown.
func isFailure(err error) bool { return !errors.Is(err, context.Canceled) }
