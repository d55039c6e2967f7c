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
)

// Webhooks are many, and small: one Asynq task each would cost more than all the rest of a delivery. So those that go out together
// travel in bundles, several of which share out a backlog among the workers.
const (
	// bundleMost is the most webhooks in a bundle.
	bundleMost = 64
	// bundleShares is into how many bundles few webhooks are divided, unless they would have fewer members than bundleLeast, which
	// one worker sends as soon as several would.
	bundleShares = 16
	bundleLeast  = 4
	// repeatWithin bounds the hand-over of a failed member to Asynq. What does not get there comes back by its lease.
	repeatWithin = time.Second
)

// bundled says whether tasks of the kind travel in bundles.
func bundled(kind models.TaskKind) bool { return kind == models.TaskDeliverWebhook }

// pack divides tasks into what travels together.
func pack(tasks []models.Task) (parcels [][]models.Task) {
	var together []models.Task
	for i, t := range tasks {
		if bundled(t.Kind) {
			together = append(together, t)
		} else {
			parcels = append(parcels, tasks[i:i+1])
		}
	}
	size := min(bundleMost, max(bundleLeast, len(together)/bundleShares+1))
	return slices.AppendSeq(parcels, slices.Chunk(together, size))
}

// newParcel is what was packed, as Asynq carries it: a task as it is, or a bundle, with a member a line.
func newParcel(members []models.Task) *asynq.Task {
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

// unpack reads the members of a bundle; none of another task.
func unpack(t *asynq.Task) (members []models.Task, err error) {
	if !bundled(models.TaskKind(t.Type())) {
		return nil, nil
	}
	for line := range strings.Lines(string(t.Payload())) {
		text, ok := strings.CutSuffix(line, "\n")
		if !ok {
			return nil, nil // a task on its own
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

// runBundle runs the members beside each other, as far as there are slots. Each has its own outcome; only if the context ends
// before all have one does the bundle fail, and comes again as a whole.
func (s *Server) runBundle(ctx context.Context, members []models.Task) error {
	var running sync.WaitGroup
	for _, m := range members {
		running.Go(func() {
			err := s.inSlot(ctx, func() error { return s.runMember(ctx, m) })
			if err != nil && ctx.Err() == nil {
				s.repeatMember(ctx, m, err)
			}
		})
	}
	running.Wait()
	return ctx.Err()
}

// runMember runs the job of one member. A panic is its error, as Asynq has it for tasks on their own.
func (s *Server) runMember(ctx context.Context, m models.Task) (err error) {
	defer models.CatchPanic(&err)
	job, ok := s.jobs[m.Kind]
	if !ok {
		return fmt.Errorf("%w: kind %q", errUnknownTask, m.Kind)
	}
	return job.Run(models.WithTraceID(ctx, m.TraceID), m)
}

// repeatMember makes a failed member a task of its own, which Asynq runs when it is due again.
func (s *Server) repeatMember(ctx context.Context, m models.Task, failure error) {
	task := newTask(m)
	s.logFailure(ctx, task, failure)
	if errors.Is(failure, asynq.SkipRetry) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), repeatWithin)
	defer cancel()
	_, err := s.tasks.EnqueueContext(ctx, task, asynq.ProcessIn(retryAfter(0, failure, task)))
	if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
		s.log.WarnContext(ctx, "a repetition is left to its lease", "task", m.ID, "error", err)
	}
}

// inSlot runs do in one of the slots for webhooks, once one is free.
func (s *Server) inSlot(ctx context.Context, do func() error) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
		return do()
	case <-ctx.Done():
		return ctx.Err()
	}
}
