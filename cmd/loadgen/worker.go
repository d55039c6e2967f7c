package main

import (
	"context"
	"errors"
	"time"

	"partnerbilling/jobs"
	"partnerbilling/jobs/rail"
	"partnerbilling/models"
	"partnerbilling/queue"
)

// worker runs the parts of svc worker in this process.
type worker struct {
	dispatcher *queue.Dispatcher
	server     *queue.Server
	webhooks   *jobs.DeliverWebhook
	store      *models.Store // closed by end; may be nil
	stop       context.CancelFunc
	dispatched chan error
}

// workerConfig configures a worker.
type workerConfig struct {
	store       *models.Store // of the worker alone; nil for the store of the bench
	queues      []models.Queue
	recurring   []models.TaskKind
	rail        rail.Rail
	concurrency int // maximum of debits in flight
}

// debitWorker returns the configuration of a worker for debits that is never limited by its call
// permits.
func debitWorker(r rail.Rail) workerConfig {
	return workerConfig{
		queues: []models.Queue{models.QueueDebits}, rail: r, concurrency: referenceConcurrency * models.ChunkRows,
	}
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
		Store: store, Rail: cfg.rail, RailConcurrency: cfg.concurrency, Keyring: ring,
		WebhookTargets: models.WebhookTargets{Sandbox: true, Loopback: true}, Notify: w.dispatcher.Notify,
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
