// Package queue carries the outbox's tasks to the worker fleet over Asynq.
//
// Postgres holds the work (models.Task); Redis only distributes it. The Dispatcher claims due tasks
// from the outbox, fairly between organisations, and enqueues them. The Server fetches tasks and
// runs the Job of each. A task in Redis carries only ids and a number of rows.
package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"partnerbilling/models"
	"partnerbilling/models/logs"
)

// Job does the work of one kind of task. Run returns an error only if the run failed as a whole.
// Asynq then retries it.
type Job interface {
	Run(ctx context.Context, task models.Task) error
}

// Jobs maps each kind of task to its job.
type Jobs map[models.TaskKind]Job

// weights holds the Asynq priority of each queue that shares its slots with others. Checkout and
// webhooks have slots of their own.
var weights = map[models.Queue]int{
	models.QueueDebits: 6,
	models.QueueSweeps: 2,
}

const (
	// runTimeout ends the context of a run. On a slow rail, the rows that are left become due
	// again.
	runTimeout = 2 * time.Minute
	// taskTimeout is the time after which Asynq gives up on a run. It leaves a run the time to end
	// its calls and to record their results. Asynq truncates it to whole seconds.
	taskTimeout = runTimeout + 45*time.Second
	// maxRetry is how often Asynq retries a failed run. After that the task is dispatched again
	// when its lease expires.
	maxRetry = 3
	// maxWebhookRetry is maxRetry for webhooks: the retries that the contract promises. Postgres
	// decides whether an attempt is due and when an event has failed.
	maxWebhookRetry = 5
)

func maxRetryOf(kind models.TaskKind) int {
	if kind == models.TaskDeliverWebhook {
		return maxWebhookRetry
	}
	return maxRetry
}

// plannedRetry is a failure for which the job has set the delay of the retry.
type plannedRetry struct {
	after time.Duration
	cause error
}

func (r *plannedRetry) Error() string { return fmt.Sprintf("%v; retry in %s", r.cause, r.after) }

func (r *plannedRetry) Unwrap() error { return r.cause }

// RetryAfter returns the error of a run that failed in an expected way and that Asynq retries after
// d. The job has recorded the retry in Postgres already. The dashboard shows it as a retry, the log
// as information.
func RetryAfter(d time.Duration, cause error) error { return &plannedRetry{d, cause} }

const (
	// traceHeader carries the trace id of the request that caused a task.
	traceHeader = "traceId"
	// organisationHeader and rowsHeader carry the organisation and the number of rows of a task,
	// for fair scheduling. The effect of a task depends on Postgres alone.
	organisationHeader = "organisationId"
	rowsHeader         = "rows"
)

// withTask returns a context whose log records carry the ids of the task.
func withTask(ctx context.Context, t models.Task) context.Context {
	attrs := make([]slog.Attr, 0, 3)
	attrs = append(attrs, slog.String("kind", string(t.Kind)), slog.Any(logs.TaskID, t.ID))
	if !t.OrganisationID.IsZero() {
		attrs = append(attrs, slog.Any(logs.OrganisationID, t.OrganisationID))
	}
	return logs.With(models.WithTraceID(ctx, t.TraceID), attrs...)
}

// withIDs is withTask for the task that t carries.
func withIDs(ctx context.Context, t *asynq.Task) context.Context {
	task, err := readTask(t)
	if err != nil {
		return logs.With(ctx, slog.String("kind", t.Type()))
	}
	return withTask(ctx, task)
}

// newTask returns the Asynq task that carries t. The dispatch count makes the task id of each
// dispatch unique, so that a leftover of an earlier dispatch in Redis cannot block it.
func newTask(t models.Task) *asynq.Task {
	headers := map[string]string{
		traceHeader: string(t.TraceID), organisationHeader: t.OrganisationID.String(), rowsHeader: strconv.Itoa(t.Rows),
	}
	return asynq.NewTaskWithHeaders(string(t.Kind), []byte(t.ID.String()), headers,
		asynq.Queue(string(t.Kind.Queue())),
		asynq.TaskID(fmt.Sprintf("%s:%s:e%d", t.Kind, t.ID, t.Epoch)),
		asynq.MaxRetry(maxRetryOf(t.Kind)), asynq.Timeout(taskTimeout))
}

// epochOf returns the dispatch count in the Asynq id of a task, 0 if there is none.
func epochOf(id string) int {
	epoch, _ := strconv.Atoi(id[strings.LastIndexByte(id, 'e')+1:])
	return epoch
}

// readTask returns the task that t carries: kind, id and, if the headers hold them, organisation,
// number of rows and trace id.
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
	task.Rows, _ = strconv.Atoi(t.Headers()[rowsHeader]) // 0 without a header
	task.TraceID = models.TraceID(t.Headers()[traceHeader])
	return task, nil
}

// errUnknownTask fails a task that this binary cannot read, without a retry. A worker with a newer
// binary may get it when the dispatcher sends it again.
var errUnknownTask = fmt.Errorf("queue: unknown task: %w", asynq.SkipRetry)

// retryDelay returns the delay before the n-th retry of a failed run. It implements
// asynq.RetryDelayFunc.
func retryDelay(n int, err error, _ *asynq.Task) time.Duration {
	var planned *plannedRetry
	if errors.As(err, &planned) {
		return planned.after
	}
	return min(time.Second<<min(n, 4), 10*time.Second)
}

// isFailure reports whether Asynq counts an error as a failure. Errors of a shutdown do not count.
func isFailure(err error) bool { return !errors.Is(err, context.Canceled) }
