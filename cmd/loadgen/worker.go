package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"partnerbilling/jobs"
	"partnerbilling/jobs/rail"
	"partnerbilling/models"
	"partnerbilling/queue"
)

// worker runs the parts of `svc worker` inside this process, so that a scenario can choose them.
type worker struct {
	dispatcher *queue.Dispatcher
	server     *queue.Server
	webhooks   *jobs.DeliverWebhook
	store      *models.Store // of the worker alone, closed by end; nil if it uses the bench's
	stop       context.CancelFunc
	dispatched chan error // receives the dispatcher's error when it ends
}

// workerConfig configures a worker.
type workerConfig struct {
	store       *models.Store     // of the worker alone; nil for the store of the bench
	queues      []models.Queue    // that it works on
	recurring   []models.TaskKind // that its dispatcher creates, at the intervals of svc worker
	rail        rail.Rail
	concurrency int // maximum number of debits in flight; 0 for as many as its slots can have
}

// maxClaimed is the maximum number of rows that the debit slots of a worker claim at the same time.
var maxClaimed = queue.DefaultSlots(models.QueueDebits) * models.ChunkRows

// debitWorker returns the configuration of a worker for debits on the rail.
func debitWorker(r rail.Rail) workerConfig {
	return workerConfig{queues: []models.Queue{models.QueueDebits}, rail: r}
}

// startWorker starts a worker on the bench's servers.
func (b *bench) startWorker(ctx context.Context, cfg workerConfig) (*worker, error) {
	store := cfg.store
	if store == nil {
		store = b.store
	}
	ring, err := keyring()
	if err != nil {
		return nil, err
	}
	recurring := map[models.TaskKind]time.Duration{}
	for _, kind := range cfg.recurring {
		recurring[kind] = jobs.Recurring[kind]
	}
	ctx, stop := context.WithCancel(ctx)
	w := &worker{store: cfg.store, stop: stop, dispatched: make(chan error, 1)}
	w.dispatcher = queue.NewDispatcher(store, b.redis, queue.DispatcherConfig{Recurring: recurring, Log: b.log})
	table := jobs.New(jobs.Config{
		Store: store, Rail: cfg.rail, Keyring: ring,
		RailConcurrency: cmp.Or(cfg.concurrency, maxClaimed+queue.DefaultSlots(models.QueueCheckout)),
		WebhookTargets:  models.WebhookTargets{Sandbox: true, Loopback: true}, Notify: w.dispatcher.Notify,
		RunClaimed: func(tasks []models.Task) { w.server.RunClaimed(tasks) }, Log: b.log,
	})
	w.webhooks, _ = table[models.TaskDeliverWebhook].(*jobs.DeliverWebhook)
	w.server = queue.NewServer(b.redis, table, queue.ServerConfig{Queues: cfg.queues, Log: b.log})
	if err := w.server.Start(); err != nil {
		stop()
		return nil, err
	}
	go func() { w.dispatched <- w.dispatcher.Run(ctx) }()
	return w, nil
}

// end stops the worker gracefully and waits for its end.
func (w *worker) end() error {
	w.stop()
	w.server.Shutdown()
	if w.webhooks != nil {
		w.webhooks.Sender.Close()
	}
	err := <-w.dispatched
	if w.store != nil {
		err = errors.Join(err, w.store.Close())
	}
	return err
}
