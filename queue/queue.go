// Package queue carries the outbox's tasks to the worker fleet over Asynq.
//
// Postgres holds the work (models.Task); Redis only distributes it. The Dispatcher claims due tasks
// from the outbox, fairly between organisations, and enqueues them. The Server fetches tasks and
// runs the Job of each. A task in Redis carries only ids, a dispatch count and a number of rows.
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

// Job does the work of one kind of task. Run returns an error only if the run failed as a whole;
// Asynq then retries the task.
type Job interface {
	Run(ctx context.Context, task models.Task) error
}

// Jobs maps each kind of task to its job.
type Jobs map[models.TaskKind]Job

// weights holds the Asynq priorities of the queues that share slots. Checkout and webhooks have
// slots of their own.
var weights = map[models.Queue]int{
	models.QueueDebits: 6,
	models.QueueSweeps: 2,
}

const (
	// runTimeout is the time after which the context of a run ends. On a slow rail, rows that the
	// run has not finished become due again.
	runTimeout = 2 * time.Minute
	// taskTimeout is the time after which Asynq gives up on a run. It leaves a run the time to end
	// its calls and to record their results. Asynq truncates time-outs to whole seconds.
	taskTimeout = runTimeout + 45*time.Second
	// maxRetry is how often Asynq retries a failed run. After that the task is dispatched again
	// when its lease expires.
	maxRetry = 3
	// maxWebhookRetry is maxRetry for webhooks: the number of retries that the contract with
	// partners promises. Postgres decides whether an attempt is due and when an event has failed.
	maxWebhookRetry = 5
)

// maxRetryOf returns how often Asynq retries a failed run of a task of the kind.
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

// RetryAfter returns the error of a run that failed in an expected way. Asynq retries the task
// after d. The job has recorded the retry in Postgres already. The dashboard shows the failure as a
// retry, and the log has it at level info.
func RetryAfter(d time.Duration, cause error) error { return &plannedRetry{d, cause} }

const (
	// traceHeader carries the trace id of the request that caused a task.
	traceHeader = "traceId"
	// organisationHeader and rowsHeader carry the organisation and the number of rows of a task.
	// They serve fair scheduling only: the effect of a task depends on Postgres alone.
	organisationHeader = "organisationId"
	rowsHeader         = "rows"
)

// withTask returns a context whose log records carry the kind and the ids of the task.
func withTask(ctx context.Context, t models.Task) context.Context {
	attrs := make([]slog.Attr, 0, 3)
	attrs = append(attrs, slog.String("kind", string(t.Kind)), slog.Any(logs.TaskID, t.ID))
	if !t.OrganisationID.IsZero() {
		attrs = append(attrs, slog.Any(logs.OrganisationID, t.OrganisationID))
	}
	return logs.With(models.WithTraceID(ctx, t.TraceID), attrs...)
}

// withIDs is withTask for the task that t carries. If t is a bundle or unreadable, the log records
// carry only the kind.
func withIDs(ctx context.Context, t *asynq.Task) context.Context {
	task, err := readTask(t)
	if err != nil {
		return logs.With(ctx, slog.String("kind", t.Type()))
	}
	return withTask(ctx, task)
}

// newTask returns the Asynq task that carries t. The dispatch count t.Epoch makes the Asynq id of
// each dispatch unique. A leftover of an earlier dispatch in Redis thus cannot block a later one.
func newTask(t models.Task) *asynq.Task {
	headers := map[string]string{
		traceHeader: string(t.TraceID), organisationHeader: t.OrganisationID.String(), rowsHeader: strconv.Itoa(t.Rows),
	}
	return asynq.NewTaskWithHeaders(string(t.Kind), []byte(t.ID.String()), headers,
		asynq.Queue(string(t.Kind.Queue())),
		asynq.TaskID(fmt.Sprintf("%s:%s:e%d", t.Kind, t.ID, t.Epoch)),
		asynq.MaxRetry(maxRetryOf(t.Kind)), asynq.Timeout(taskTimeout))
}

// epochOf returns the dispatch count in the Asynq id of a task: 0 if there is none.
func epochOf(id string) int {
	epoch, _ := strconv.Atoi(id[strings.LastIndexByte(id, 'e')+1:])
	return epoch
}

// readTask returns the task that the plain task t carries: kind, id and, if the headers hold them,
// organisation, number of rows and trace id. It returns errUnknownTask if t is not readable.
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

// errUnknownTask is the error of a task that this binary cannot read. Asynq does not retry the
// task. The dispatcher sends it again later, maybe to a worker with a newer binary.
var errUnknownTask = fmt.Errorf("queue: unknown task: %w", asynq.SkipRetry)

// retryDelay returns the delay before the n-th retry (from 0) of a run that failed with err: the
// delay that the job has set, or a backoff from 1 s up to 10 s. It implements asynq.RetryDelayFunc.
func retryDelay(n int, err error, _ *asynq.Task) time.Duration {
	var planned *plannedRetry
	if errors.As(err, &planned) {
		return planned.after
	}
	return min(time.Second<<min(n, 4), 10*time.Second)
}

// isFailure reports whether Asynq counts an error as a failure. Errors of a shutdown do not count,
// and so use up no retry.
func isFailure(err error) bool { return !errors.Is(err, context.Canceled) }
