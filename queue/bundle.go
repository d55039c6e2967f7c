package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"partnerbilling/models"
	"partnerbilling/models/coalesce"
	"partnerbilling/models/logs"
)

// Webhooks are many and small: an Asynq task for each would cost more than the rest of the
// delivery. One Asynq task therefore carries a bundle of them.
const (
	// maxBundleSize is the maximum number of webhooks in a bundle.
	maxBundleSize = 64
	// minBundleSize is the minimum number of webhooks in a bundle. Only the last bundle may have
	// fewer.
	minBundleSize = 4
	// targetBundles is the maximum number of bundles, unless they would exceed maxBundleSize. Many
	// small bundles let several workers share a small backlog.
	targetBundles = 16
	// retryTimeout bounds the enqueue of a failed member. A member that is not enqueued is
	// dispatched again when its lease expires.
	retryTimeout = time.Second
)

// isBundled reports whether tasks of the kind travel in bundles.
func isBundled(kind models.TaskKind) bool { return kind == models.TaskDeliverWebhook }

// makeBundles divides tasks into bundles. A task that is not a webhook gets a bundle of its own.
func makeBundles(tasks []models.Task) (bundles [][]models.Task) {
	var webhooks []models.Task
	for i, t := range tasks {
		if isBundled(t.Kind) {
			webhooks = append(webhooks, t)
		} else {
			bundles = append(bundles, tasks[i:i+1])
		}
	}
	size := min(maxBundleSize, max(minBundleSize, len(webhooks)/targetBundles+1))
	return slices.AppendSeq(bundles, slices.Chunk(webhooks, size))
}

// newBundle returns the Asynq task that carries the members of a bundle. A bundle of one member is
// a plain task. The payload of a larger bundle has a line for each member: id, dispatch count,
// organisation and trace id, separated by spaces.
func newBundle(members []models.Task) *asynq.Task {
	if len(members) == 1 {
		return newTask(members[0])
	}
	var payload strings.Builder
	for _, m := range members {
		fmt.Fprintln(&payload, m.ID, m.Epoch, m.OrganisationID, m.TraceID)
	}
	first := members[0]
	return asynq.NewTask(string(first.Kind), []byte(payload.String()),
		asynq.Queue(string(first.Kind.Queue())),
		asynq.TaskID(fmt.Sprintf("%s:bundle:%s:e%d", first.Kind, first.ID, first.Epoch)),
		asynq.MaxRetry(maxRetry), asynq.Timeout(taskTimeout))
}

// readBundle returns the members of a bundle. It returns none for a plain task, and errUnknownTask
// for a bundle that it cannot read.
func readBundle(t *asynq.Task) (members []models.Task, err error) {
	if !isBundled(models.TaskKind(t.Type())) {
		return nil, nil
	}
	for line := range strings.Lines(string(t.Payload())) {
		text, ok := strings.CutSuffix(line, "\n")
		if !ok {
			return nil, nil
		}
		fields := strings.Split(text, " ")
		if len(fields) != 4 {
			return nil, fmt.Errorf("%w: bundle with %d fields a line", errUnknownTask, len(fields))
		}
		m := models.Task{Kind: models.TaskKind(t.Type()), TraceID: models.TraceID(fields[3])}
		m.Epoch, err = strconv.Atoi(fields[1])
		err = errors.Join(err, m.ID.UnmarshalText([]byte(fields[0])), m.OrganisationID.UnmarshalText([]byte(fields[2])))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUnknownTask, err)
		}
		members = append(members, m)
	}
	return members, nil
}

// runBundle runs the members concurrently, each in a webhook slot. A member that fails is retried
// alone. The bundle itself fails, and is retried, only if the context ends first.
func (s *Server) runBundle(ctx context.Context, members []models.Task) error {
	ctx, span := s.tracer.StartBundle(ctx, members)
	defer span.End(nil)
	var running sync.WaitGroup
	for _, m := range members {
		running.Go(func() {
			err := s.inSlot(ctx, func() error { return s.runMember(ctx, m) })
			if err != nil && ctx.Err() == nil {
				s.retryMember(ctx, m, err)
			}
		})
	}
	running.Wait()
	return ctx.Err()
}

// RunClaimed runs claimed webhook tasks without a dispatch, each in a slot, as members of a bundle.
// It returns without waiting for the tasks. Only a job that this server runs may call RunClaimed,
// so that Shutdown waits for the tasks. Tasks that a shutdown interrupts are dispatched when their
// leases expire.
func (s *Server) RunClaimed(tasks []models.Task) {
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(s.runCtx, taskTimeout)
		defer cancel()
		if err := s.runBundle(ctx, tasks); err != nil {
			s.log.InfoContext(ctx, "interrupted tasks come back when their leases expire", "tasks", len(tasks),
				"error", err)
		}
	})
}

// runMember runs the job of one member. It turns a panic into an error, as Asynq does for plain
// tasks.
func (s *Server) runMember(ctx context.Context, m models.Task) (err error) {
	defer coalesce.CatchPanic(&err)
	return s.runJob(ctx, m)
}

// retryMember logs the failure of a member. Unless the failure forbids a retry, it enqueues the
// member as a plain task, to be run when its retry is due.
func (s *Server) retryMember(ctx context.Context, m models.Task, failure error) {
	task := newTask(m)
	s.logFailure(ctx, task, failure)
	if errors.Is(failure, asynq.SkipRetry) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryTimeout)
	defer cancel()
	_, err := s.tasks.EnqueueContext(ctx, task, asynq.ProcessIn(retryDelay(0, failure, task)))
	if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
		err = logs.OfRedis(err)
		s.log.WarnContext(ctx, "cannot enqueue a retry; the task comes back when its lease expires", logs.Outage(err),
			"error", err)
	}
}

// inSlot waits for a free webhook slot and runs do in it. If ctx ends first, inSlot returns the
// error of ctx without running do.
func (s *Server) inSlot(ctx context.Context, do func() error) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
		if err := ctx.Err(); err != nil { // select picks at random if both cases are ready
			return err
		}
		return do()
	case <-ctx.Done():
		return ctx.Err()
	}
}
